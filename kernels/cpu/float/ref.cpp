// Rows of floats (or of anything widened to f32) times f32 activations, the written order: acc = +0, then
// acc = fma(w[k], x[k], acc) for k = 0, 1, 2, ...
#include "kernels/cpu/vec/ref.h"
#include "kernels/cpu/float/widen.h"

namespace tealight::kernels {
namespace {

constexpr int kPiece = 256;  // a multiple of every block

void widen_f16(const void* src, float* dst, size_t n) {
  for (size_t i = 0; i < n; i++) dst[i] = load_f16(static_cast<const uint8_t*>(src) + 2 * i);
}
void to_f16(const float* src, uint16_t* dst, size_t n) {
  for (size_t i = 0; i < n; i++) dst[i] = f32_to_f16(src[i]);
}

template <Table::Widen W, Dtype D>
void matmul_float(const void* w, size_t w_stride, int K, const float* x, size_t ldx, int T, float* y, size_t ldy, int r0,
                  int r1, void*) {
  for (int r = r0; r < r1; r++) {
    const uint8_t* row = static_cast<const uint8_t*>(w) + size_t(r) * w_stride;
    for (int k0 = 0; k0 < K; k0 += kPiece) {
      const int n = min_int(kPiece, K - k0);
      float wide[kPiece];
      W(row + row_bytes(D, size_t(k0)), wide, size_t(n));
      for (int t = 0; t < T; t++) {
        float acc = k0 ? y[size_t(t) * ldy + r] : 0.0f;
        for (int k = 0; k < n; k++) acc = fma1(wide[k], x[size_t(t) * ldx + k0 + k], acc);
        y[size_t(t) * ldy + r] = acc;
      }
    }
  }
}

template <Table::Widen W, Dtype D>
void fill_type(Table& t) {
  t.widen[int(D)] = W;
  t.matmul_float[int(D)] = matmul_float<W, D>;
}

}  // namespace

void float_ref(Table& t) {
  t.to_f16 = to_f16;
  fill_type<widen_f32, Dtype::f32>(t);
  fill_type<widen_f16, Dtype::f16>(t);
  fill_type<widen_bf16, Dtype::bf16>(t);
#define TL_DECODE_ROW(name) fill_type<widen_##name, Dtype::name>(t);
#define TL_INTEGER_ROW(Type, name) TL_DECODE_ROW(name)
  TL_INTEGER_TYPES(TL_INTEGER_ROW)
  TL_DECODE_TYPES(TL_DECODE_ROW)
}

}  // namespace tealight::kernels
