// Integer rows times quantized activations, the written order.
//
// Per weight row and token: acc = +0; for each block in rising k, with d, m, dmin the f16 fields and I, S, M exact integers
//   32 family    I = sum w q                                         acc = fma(d * dx, float(I), acc)
//                and where the type has m                            acc = fma(m, s, acc)
//   256 family   S = sum over sub-blocks of scale * (sum w q)        acc = fma(d * dx, float(S), acc)
//                and where it has dmin, M = sum of min * (sum q)     acc = fma(-(dmin * dx), float(M), acc)
// float() rounds to nearest even.
#include "kernels/cpu/types/types.h"
#include "kernels/cpu/x16.h"

namespace tealight::kernels {
namespace {

template <int n>
void largest(const float* x, size_t ldx, int count, uint32_t* top) {
  for (int t = 0; t < n; t++) {
    top[t] = 0;
    for (int i = 0; i < count; i++) {
      const uint32_t a = bits(x[size_t(t) * ldx + size_t(i)]) & 0x7fffffff;
      top[t] = top[t] > a ? top[t] : a;
    }
  }
}
template <int n>
void round32(const float* x, size_t ldx, const float* id, int8_t* to, int32_t (*sums)[n]) {
  for (int t = 0; t < n; t++) {
    sums[0][t] = sums[1][t] = 0;
    for (int i = 0; i < 32; i++) {
      const auto q = int8_t(round_even(x[size_t(t) * ldx + size_t(i)] * id[t]));
      to[(i / 4 * n + t) * 4 + i % 4] = q;
      sums[i / 16][t] += q;
    }
  }
}

}  // namespace
}  // namespace tealight::kernels

#include "kernels/cpu/quant/quantize.h"

namespace tealight::kernels {
namespace {

// Block b of row r where it lies, or from a group of x16 put together in `made`.
template <class Type>
const uint8_t* block_of(const void* w, int K, bool x16, int r, int b, uint8_t* made) {
  constexpr int kEach = Type::kBlock == 32 ? 2 : 1;  // blocks of a chunk
  const auto* p = static_cast<const uint8_t*>(w);
  if (!x16) return p + size_t(r) * row_bytes(Type::kDtype, size_t(K)) + size_t(b) * Type::kBytes;
  p += size_t(r / 16 * 16) * x16_row_bytes(Type::kDtype, size_t(K)) + size_t(b / kEach) * x16_chunk_bytes(Type::kDtype);
  extract_x16(Type::kDtype, p, r % 16, Type::kBlock * kEach, made);
  return made + b % kEach * Type::kBytes;
}

template <class Type>
void rows(const void* w, int K, bool x16, const void* act, int T, float* y, size_t ldy, int r0, int r1) {
  constexpr int B = Type::kBlock, kSubs = B / Type::kSub;
  constexpr Family family = B == 32 ? Family::block32 : Family::block256;
  const int blocks = K / B;
  for (int r = r0; r < r1; r++) {
    for (int b = 0; b < blocks; b++) {
      uint8_t made[2 * Type::kBytes];
      const uint8_t* block = block_of<Type>(w, K, x16, r, b, made);
      int8_t code[B];
      int16_t scale[kSubs], least[kSubs];
      Type::codes(block, code);
      if constexpr (B == 256) Type::scales(block, scale, least);
      const float d = load_f16(block + Type::kScaleAt), m = Type::kMinAt < 0 ? 0.0f : load_f16(block + Type::kMinAt);
      for (int t = 0; t < T; t++) {
        const int first = t / kActTile * kActTile, n = T - first >= kActTile ? kActTile : 1, token = n == 1 ? 0 : t - first;
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

template <class Type, bool x16>
void matmul_int(const void* w, int K, const void* act, int T, float* y, size_t ldy, int r0, int r1, void*) {
  rows<Type>(w, K, x16, act, T, y, ldy, r0, r1);
}

}  // namespace

void quant_ref(Table& t) {
  t.quantize = quantize;
#define TL_ROW(Type, name) \
  t.matmul_int[int(Dtype::name)] = matmul_int<Type, false>; \
  t.matmul_x16[int(Dtype::name)] = matmul_int<Type, true>;
  TL_INTEGER_TYPES(TL_ROW)
}

}  // namespace tealight::kernels
