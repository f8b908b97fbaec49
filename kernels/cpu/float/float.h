// Float rows times f32 activations; the written order is in float/ref.cpp. Lanes are 16 weight rows.
//   few tokens, plain floats   16 rows are read side by side and transposed in registers, nothing is stored
//   else                       16 rows x 256 k are widened and transposed once into a panel [k][16], then multiplied with
//                              tiles of tokens; accumulators rest in y between panels
// Include after vec/*.h, vec/math.h and float/few_*.h.
#pragma once
#include "kernels/cpu/float/widen.h"
#include "kernels/cpu/scratch.h"

namespace tealight::kernels {
namespace {

// T tokens times a panel of n k; rows of y hold `rows` lanes.
template <int T>
[[gnu::noinline]] void panel_tile(const float* panel, int n, const float* x, size_t ldx, float* y, size_t ldy, int rows, bool first) {
  Vec acc[T];
  TL_UNROLL for (int t = 0; t < T; t++) acc[t] = first ? Vec::set(0.0f) : load_n(y + size_t(t) * ldy, rows);
  const float* base[(T + 2) / 3];  // three tokens an address register
  TL_UNROLL for (int i = 0; i < (T + 2) / 3; i++) base[i] = x + size_t(3 * i) * ldx;
  for (int k = 0; k < n; k++) {
    const Vec w = Vec::load(panel + k * 16);
    TL_UNROLL for (int t = 0; t < T; t++) acc[t] = Vec::fma(w, Vec::set(base[t / 3][size_t(k) + size_t(t % 3) * ldx]), acc[t]);
  }
  TL_UNROLL for (int t = 0; t < T; t++) store_n(acc[t], y + size_t(t) * ldy, rows);
}

[[gnu::noinline]] void panels(Table::Widen widen_rows, int block, int bytes, const void* w, size_t stride, int K, const float* x, size_t ldx,
            int T, float* y, size_t ldy, int r0, int r1, void* scratch) {
  constexpr int kTokens = Vec::kRegisters >= 32 ? 12 : 6;
  float* panel = static_cast<float*>(scratch);
  float* wide = panel + kFloatPiece * 16;
  for (int r = r0; r < r1; r += 16) {
    const Rows row(w, stride, r, r1 - 1);
    const int rows = min_int(16, r1 - r);
    for (int k0 = 0; k0 < K; k0 += kFloatPiece) {
      const int n = min_int(kFloatPiece, K - k0);
      const float* at[16];
      for (int i = 0; i < 16; i++) {
        at[i] = wide + i * kFloatPiece;
        widen_rows(row.at[i] + size_t(k0 / block) * size_t(bytes), wide + i * kFloatPiece, size_t(n));
      }
      transpose_rows(at, n, panel);
      int t = 0;
      const auto tile = [&](auto tokens) {
        constexpr int kCount = decltype(tokens)::value;
        for (; t + kCount <= T; t += kCount)
          panel_tile<kCount>(panel, n, x + size_t(t) * ldx + k0, ldx, y + size_t(t) * ldy + r, ldy, rows, k0 == 0);
      };
      tile(Count<kTokens>{});
      if (kTokens == 12) tile(Count<6>{});
      tile(Count<3>{});
      tile(Count<1>{});
    }
  }
}

template <Table::Widen W, Dtype D>
void matmul_wide(const void* w, size_t stride, int K, const float* x, size_t ldx, int T, float* y, size_t ldy, int r0, int r1,
                 void* scratch) {
  panels(W, kDtypeInfo[int(D)].block, kDtypeInfo[int(D)].bytes, w, stride, K, x, ldx, T, y, ldy, r0, r1, scratch);
}
template <Table::Widen W, Dtype D, class E>
void matmul_plain(const void* w, size_t stride, int K, const float* x, size_t ldx, int T, float* y, size_t ldy, int r0, int r1,
                  void* scratch) {
  if (T == 1) few_tokens<E, 1>(w, stride, K, x, ldx, y, ldy, r0, r1);
  else if (T == 2) few_tokens<E, 2>(w, stride, K, x, ldx, y, ldy, r0, r1);
  else if (T == 3) few_tokens<E, 3>(w, stride, K, x, ldx, y, ldy, r0, r1);
  else matmul_wide<W, D>(w, stride, K, x, ldx, T, y, ldy, r0, r1, scratch);
}

void fill_float(Table& t) {
  t.to_f16 = to_f16;
#define TL_FLOAT_ROW(dtype, function, E) \
  t.widen[int(dtype)] = function;        \
  t.matmul_float[int(dtype)] = matmul_plain<function, dtype, E>;
  TL_FLOAT_ROW(Dtype::f32, widen_f32, F32)
  TL_FLOAT_ROW(Dtype::f16, widen_f16, F16)
  TL_FLOAT_ROW(Dtype::bf16, widen_bf16, Bf16)
#define TL_DECODE_ROW(name)                  \
  t.widen[int(Dtype::name)] = widen_##name; \
  t.matmul_float[int(Dtype::name)] = matmul_wide<widen_##name, Dtype::name>;
#define TL_INTEGER_ROW(Type, name) TL_DECODE_ROW(name)
  TL_INTEGER_TYPES(TL_INTEGER_ROW)
  TL_DECODE_TYPES(TL_DECODE_ROW)
}

}  // namespace
}  // namespace tealight::kernels
