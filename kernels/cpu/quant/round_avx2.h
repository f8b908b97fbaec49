// The two steps of quantize.h with AVX2.
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

inline uint32_t largest(const float* x, int n) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  __m256i m = _mm256_setzero_si256();
  for (int i = 0; i < n; i += 8) m = _mm256_max_epi32(m, _mm256_and_si256(load256(x + i), mask));
  __m128i h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
  h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1));
  return uint32_t(_mm_cvtsi128_si32(h));
}
inline void round32(const float* x, float id, int8_t* q, int32_t* sums) {
  const __m256 s = _mm256_set1_ps(id);
  __m256i a[4];
  TL_UNROLL for (int i = 0; i < 4; i++) a[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i * 8), s));
  const __m256i p = _mm256_packs_epi16(_mm256_packs_epi32(a[0], a[1]), _mm256_packs_epi32(a[2], a[3]));
  const __m256i v = _mm256_permutevar8x32_epi32(p, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), v);
  __m256i m = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), v), _mm256_set1_epi16(1));
  m = _mm256_hadd_epi32(m, m);
  m = _mm256_hadd_epi32(m, m);
  sums[0] = _mm256_extract_epi32(m, 0);
  sums[1] = _mm256_extract_epi32(m, 4);
}

}  // namespace
}  // namespace tealight::kernels
