// The parts of float.h that differ by instruction set, for AVX2 and above: half precision both ways, few tokens times plain
// floats, and the transposition of rows into a panel.
#pragma once
#include "kernels/cpu/float/rows.h"

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

}  // namespace
}  // namespace tealight::kernels
