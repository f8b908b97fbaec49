// Float rows times f32 activations for AVX2 and above; the written order is in float/ref.cpp. Lanes are 16 weight rows.
//   few tokens, plain floats   16 rows are read side by side and transposed in registers, nothing is stored
//   else                       16 rows x 256 k are widened and transposed once into a panel [k][16], then multiplied with
//                              tiles of tokens; accumulators rest in y between panels
// Include after vec/{avx2,avx512}.h and vec/math.h.
#pragma once
#include "kernels/cpu/float/widen.h"
#include "kernels/cpu/scratch.h"

namespace tealight::kernels {
namespace {

void widen_f16(const void* src, float* dst, size_t n) {
  const uint8_t* p = static_cast<const uint8_t*>(src);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(load128(p + 2 * i)));
  for (; i < n; i++) dst[i] = load_f16(p + 2 * i);
}
void to_f16(const float* src, uint16_t* dst, size_t n) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) Vec256::load(src + i).store(dst + i);
  for (; i < n; i++) dst[i] = f32_to_f16(src[i]);
}

// Sixteen neighbouring rows from `first`; those beyond `last` repeat it.
struct Rows {
  const uint8_t* at[16];
  Rows(const void* w, size_t stride, int first, int last) {
    for (int i = 0; i < 16; i++) at[i] = static_cast<const uint8_t*>(w) + size_t(min_int(first + i, last)) * stride;
  }
};

// ---- few tokens ----

struct F32 {
  static constexpr int kBytes = 4;
  static __m256 load8(const uint8_t* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
};
struct F16 {
  static constexpr int kBytes = 2;
  static __m256 load8(const uint8_t* p) { return _mm256_cvtph_ps(load128(p)); }
};
struct Bf16 {
  static constexpr int kBytes = 2;
  static __m256 load8(const uint8_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
  }
};

// acc[t] += rows of half h times x, k0..k0+n-1 in rising order; v[i] holds row i at k0..k0+7.
template <int T>
inline void multiply8(__m256* v, const float* x, size_t ldx, int n, __m256 (*acc)[2], int h) {
  transpose8(v);
  if (n == 8) {
    TL_UNROLL for (int k = 0; k < 8; k++)
      TL_UNROLL for (int t = 0; t < T; t++)
        acc[t][h] = _mm256_fmadd_ps(v[k], _mm256_set1_ps(x[size_t(t) * ldx + size_t(k)]), acc[t][h]);
    return;
  }
  for (int k = 0; k < n; k++)
    for (int t = 0; t < T; t++)
      acc[t][h] = _mm256_fmadd_ps(v[k], _mm256_set1_ps(x[size_t(t) * ldx + size_t(k)]), acc[t][h]);
}

template <class E, int T>
[[gnu::noinline]] void few_tokens(const void* w, size_t stride, int K, const float* x, size_t ldx, float* y, size_t ldy, int r0, int r1) {
  constexpr int kAhead = 512;                          // bytes of prefetch along each row
  constexpr int kRowsEach = 16 * 8 * E::kBytes / 64;   // rows whose next line one step of 8 k asks for
  for (int r = r0; r < r1; r += 16) {
    const Rows row(w, stride, r, r1 - 1);
    __m256 acc[T][2];
    for (int t = 0; t < T; t++) acc[t][0] = acc[t][1] = _mm256_setzero_ps();
    int k = 0, ask = 0;
    for (; k + 8 <= K; k += 8) {
      for (int i = 0; i < kRowsEach; i++) __builtin_prefetch(row.at[ask + i] + k * E::kBytes + kAhead);
      ask = (ask + kRowsEach) & 15;
      TL_UNROLL for (int h = 0; h < 2; h++) {
        __m256 v[8];
        TL_UNROLL for (int i = 0; i < 8; i++) v[i] = E::load8(row.at[h * 8 + i] + size_t(k) * E::kBytes);
        multiply8<T>(v, x + k, ldx, 8, acc, h);
      }
    }
    if (k < K) {
      for (int h = 0; h < 2; h++) {
        __m256 v[8];
        for (int i = 0; i < 8; i++) {
          uint8_t piece[8 * E::kBytes] = {};
          memcpy(piece, row.at[h * 8 + i] + size_t(k) * E::kBytes, size_t(K - k) * E::kBytes);
          v[i] = E::load8(piece);
        }
        multiply8<T>(v, x + k, ldx, K - k, acc, h);
      }
    }
    for (int t = 0; t < T; t++) store_n(Vec256{acc[t][0], acc[t][1]}, y + size_t(t) * ldy + r, min_int(16, r1 - r));
  }
}

// ---- panels ----

// panel[k][i] = at[i][k] for n values of k
[[gnu::noinline]] void transpose_rows(const float* const* at, int n, float* panel) {
  for (int h = 0; h < 16; h += 8) {
    int k = 0;
    for (; k + 8 <= n; k += 8) {
      __m256 v[8];
      TL_UNROLL for (int i = 0; i < 8; i++) v[i] = _mm256_loadu_ps(at[h + i] + k);
      transpose8(v);
      TL_UNROLL for (int i = 0; i < 8; i++) _mm256_storeu_ps(panel + (k + i) * 16 + h, v[i]);
    }
    for (; k < n; k++)
      for (int i = 0; i < 8; i++) memcpy(panel + k * 16 + h + i, at[h + i] + k, 4);
  }
}

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
