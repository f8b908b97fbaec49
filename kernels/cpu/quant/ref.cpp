// Integer rows times quantized activations, the written order.
//
// Per weight row and token: acc = +0; for each block in rising k, with d, m, dmin the f16 fields and I, S, M exact integers
//   32 family    I = sum w q                                         acc = fma(d * dx, float(I), acc)
//                and where the type has m                            acc = fma(m, s, acc)
//   256 family   S = sum over sub-blocks of scale * (sum w q)        acc = fma(d * dx, float(S), acc)
//                and where it has dmin, M = sum of min * (sum q)     acc = fma(-(dmin * dx), float(M), acc)
// float() rounds to nearest even.
#include "kernels/cpu/types/types.h"

namespace tealight::kernels {
namespace {

uint32_t largest(const float* x, int n) {
  uint32_t m = 0;
  for (int i = 0; i < n; i++) {
    const uint32_t a = bits(x[i]) & 0x7fffffff;
    m = m > a ? m : a;
  }
  return m;
}
void round32(const float* x, float id, int8_t* q, int32_t* sums) {
  sums[0] = sums[1] = 0;
  for (int i = 0; i < 32; i++) {
    q[i] = int8_t(round_even(x[i] * id));
    sums[i / 16] += q[i];
  }
}

}  // namespace
}  // namespace tealight::kernels

#include "kernels/cpu/quant/quantize.h"

namespace tealight::kernels {
namespace {

template <class Type>
void matmul_int(const void* w, int K, const void* act, int T, float* y, size_t ldy, int r0, int r1, void*) {
  constexpr int B = Type::kBlock, kSubs = B / Type::kSub;
  constexpr Family family = B == 32 ? Family::block32 : Family::block256;
  const int blocks = K / B;
  for (int r = r0; r < r1; r++) {
    const uint8_t* block = static_cast<const uint8_t*>(w) + size_t(r) * size_t(blocks) * Type::kBytes;
    for (int b = 0; b < blocks; b++, block += Type::kBytes) {
      int8_t code[B];
      int16_t scale[kSubs], least[kSubs];
      Type::codes(block, code);
      if constexpr (B == 256) Type::scales(block, scale, least);
      const float d = load_f16(block + Type::kScaleAt), m = Type::kMinAt < 0 ? 0.0f : load_f16(block + Type::kMinAt);
      for (int t = 0; t < T; t++) {
        const int first = t / kTile * kTile, n = T - first >= kTile ? kTile : 1, token = n == 1 ? 0 : t - first;
        const ActTile a = act_tile(family, act, K, n == 1 ? t : first, n);
        const float dx = a.dx[b * n + token];
        float acc = b ? y[size_t(t) * ldy + r] : 0.0f;
        int32_t S = 0, M = 0;
        for (int j = 0; j < kSubs; j++) {
          int32_t dot = 0, sum = 0;
          for (int i = 0; i < Type::kSub; i++) {
            const int k = b * B + j * Type::kSub + i;
            const int q = a.q[(k / 4 * n + token) * 4 + k % 4];
            dot += (code[j * Type::kSub + i] - Type::kOffset) * q;
            sum += q;
          }
          if constexpr (B == 32) S = dot;
          else S += scale[j] * dot;
          if constexpr (B == 256 && Type::kMinAt >= 0) M += least[j] * sum;
        }
        acc = fma1(d * dx, float(S), acc);
        if constexpr (Type::kMinAt >= 0) acc = B == 32 ? fma1(m, a.s[b * n + token], acc) : fma1(-(m * dx), float(M), acc);
        y[size_t(t) * ldy + r] = acc;
      }
    }
  }
}

}  // namespace

void quant_ref(Table& t) {
  t.quantize = quantize;
#define TL_ROW(Type, name) t.matmul_int[int(Dtype::name)] = matmul_int<Type>;
  TL_INTEGER_TYPES(TL_ROW)
}

}  // namespace tealight::kernels
