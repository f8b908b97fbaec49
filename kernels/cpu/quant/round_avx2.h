// The two steps of quantize.h with AVX2.
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

template <int n>
inline void largest(const float* x, size_t ldx, int count, uint32_t* top) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  __m128i h[n];
  TL_UNROLL for (int t = 0; t < n; t++) {
    __m256i m = _mm256_setzero_si256();
    for (int i = 0; i < count; i += 8) m = _mm256_max_epi32(m, _mm256_and_si256(load256(x + size_t(t) * ldx + i), mask));
    h[t] = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  }
  if constexpr (n == 1) {
    h[0] = _mm_max_epi32(h[0], _mm_shuffle_epi32(h[0], 0x4e));
    h[0] = _mm_max_epi32(h[0], _mm_shuffle_epi32(h[0], 0xb1));
    *top = uint32_t(_mm_cvtsi128_si32(h[0]));
  } else {
    const __m128i a = _mm_max_epi32(_mm_unpacklo_epi32(h[0], h[1]), _mm_unpackhi_epi32(h[0], h[1]));   // two of each, by turns
    const __m128i b = _mm_max_epi32(_mm_unpacklo_epi32(h[2], h[3]), _mm_unpackhi_epi32(h[2], h[3]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(top), _mm_max_epi32(_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)));
  }
}

template <int n>
inline void round32(const float* x, size_t ldx, const float* id, int8_t* to, int32_t (*sums)[n]) {
  __m256i v[n], m[n];
  TL_UNROLL for (int t = 0; t < n; t++) {
    const __m256 s = _mm256_set1_ps(id[t]);
    __m256i a[4];
    TL_UNROLL for (int i = 0; i < 4; i++) a[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + size_t(t) * ldx + i * 8), s));
    const __m256i p = _mm256_packs_epi16(_mm256_packs_epi32(a[0], a[1]), _mm256_packs_epi32(a[2], a[3]));
    v[t] = _mm256_permutevar8x32_epi32(p, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    m[t] = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), v[t]), _mm256_set1_epi16(1));
  }
  const auto store = [to](int at, __m256i a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + at), a); };
  if constexpr (n == 1) {
    store(0, v[0]);
    m[0] = _mm256_hadd_epi32(m[0], m[0]);
    m[0] = _mm256_hadd_epi32(m[0], m[0]);
    sums[0][0] = _mm256_extract_epi32(m[0], 0);
    sums[1][0] = _mm256_extract_epi32(m[0], 4);
  } else {
    TL_UNROLL for (int h = 0; h < 2; h++) {
      const __m256i a = h ? _mm256_unpackhi_epi32(v[0], v[1]) : _mm256_unpacklo_epi32(v[0], v[1]);
      const __m256i b = h ? _mm256_unpackhi_epi32(v[2], v[3]) : _mm256_unpacklo_epi32(v[2], v[3]);
      const __m256i even = _mm256_unpacklo_epi64(a, b), odd = _mm256_unpackhi_epi64(a, b);   // words 2 h and 2 h + 4; and those behind
      store(h * 32, _mm256_permute2x128_si256(even, odd, 0x20));
      store(h * 32 + 64, _mm256_permute2x128_si256(even, odd, 0x31));
    }
    const __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(m[0], m[1]), _mm256_hadd_epi32(m[2], m[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), s);
  }
}

}  // namespace
}  // namespace tealight::kernels
