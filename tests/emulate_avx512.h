// The AVX-512 and AVX-VNNI intrinsics that kernels/ uses, as functions of SIMDe, so that the sources of those sets can be compiled
// for AVX2 and compared with ref on any machine. What SIMDe 0.7 lacks, or does not fuse, is written out as two halves.
#pragma once
#include <simde/x86/avx512.h>
#include <string.h>

namespace emulate {
inline __m256 low(__m512 v) { return simde_mm512_castps512_ps256(v); }
inline __m256 high(__m512 v) { return simde_mm256_castsi256_ps(simde_mm512_extracti64x4_epi64(simde_mm512_castps_si512(v), 1)); }
inline __m256i low(__m512i v) { return simde_mm512_castsi512_si256(v); }
inline __m256i high(__m512i v) { return simde_mm512_extracti64x4_epi64(v, 1); }
inline __m512i join(__m256i a, __m256i b) { return simde_mm512_inserti64x4(simde_mm512_castsi256_si512(a), b, 1); }
inline __m512 join(__m256 a, __m256 b) { return simde_mm512_castsi512_ps(join(_mm256_castps_si256(a), _mm256_castps_si256(b))); }

inline __m512 fmadd(__m512 a, __m512 b, __m512 c) {
  return join(_mm256_fmadd_ps(low(a), low(b), low(c)), _mm256_fmadd_ps(high(a), high(b), high(c)));
}
inline __m512 fnmadd(__m512 a, __m512 b, __m512 c) {
  return join(_mm256_fnmadd_ps(low(a), low(b), low(c)), _mm256_fnmadd_ps(high(a), high(b), high(c)));
}
inline __m512 to_float(__m512i a) { return join(_mm256_cvtepi32_ps(low(a)), _mm256_cvtepi32_ps(high(a))); }
inline __m512 from_half(__m256i a) {
  return join(_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
}
inline __m512i srai(__m512i a, int n) { return join(_mm256_srai_epi32(low(a), n), _mm256_srai_epi32(high(a), n)); }
inline __m512i srai16(__m512i a, int n) { return join(_mm256_srai_epi16(low(a), n), _mm256_srai_epi16(high(a), n)); }
inline __m512i from_s8(__m128i a) { return join(_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8))); }
inline __m512i from_u16(__m256i a) {
  return join(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)), _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)));
}
inline __m512 load_masked(__mmask16 mask, const float* p) {
  float v[16];
  for (int i = 0; i < 16; i++) v[i] = mask >> i & 1 ? p[i] : 0;
  return simde_mm512_loadu_ps(v);
}
inline void store_masked(float* p, __mmask16 mask, __m512 a) {
  float v[16];
  simde_mm512_storeu_ps(v, a);
  for (int i = 0; i < 16; i++)
    if (mask >> i & 1) p[i] = v[i];
}
// Products of bytes by fours, and of 16-bit numbers by twos, added.
inline __m256i dpbusd(__m256i acc, __m256i u, __m256i s) {
  int32_t sum[8];
  uint8_t a[32];
  int8_t b[32];
  memcpy(sum, &acc, 32), memcpy(a, &u, 32), memcpy(b, &s, 32);
  for (int i = 0; i < 32; i++) sum[i / 4] += a[i] * b[i];
  memcpy(&acc, sum, 32);
  return acc;
}
inline __m256i dpwssd(__m256i acc, __m256i a, __m256i b) { return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)); }
}  // namespace emulate

#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps emulate::load_masked
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps emulate::store_masked
#undef _mm256_dpbusd_avx_epi32
#define _mm256_dpbusd_avx_epi32 emulate::dpbusd
#undef _mm256_dpwssd_avx_epi32
#define _mm256_dpwssd_avx_epi32 emulate::dpwssd
#undef _mm512_mullo_epi16
#define _mm512_mullo_epi16 simde_mm512_mullo_epi16
#undef _mm512_slli_epi16
#define _mm512_slli_epi16 simde_mm512_slli_epi16
#undef _mm512_sub_epi8
#define _mm512_sub_epi8 simde_mm512_sub_epi8

#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps emulate::fmadd
#undef _mm512_fnmadd_ps
#define _mm512_fnmadd_ps emulate::fnmadd
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps emulate::to_float
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps emulate::from_half
#undef _mm512_srai_epi32
#define _mm512_srai_epi32 emulate::srai
#undef _mm512_srai_epi16
#define _mm512_srai_epi16 emulate::srai16
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32 emulate::from_s8
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32 emulate::from_u16
#undef _mm512_broadcast_i32x4
#define _mm512_broadcast_i32x4 simde_mm512_broadcast_i32x4
#undef _mm512_min_epu8
#define _mm512_min_epu8 simde_mm512_min_epu8
#undef _mm512_shuffle_epi8
#define _mm512_shuffle_epi8 simde_mm512_shuffle_epi8
#undef _mm512_sub_epi16
#define _mm512_sub_epi16 simde_mm512_sub_epi16
#undef _mm512_add_epi32
#define _mm512_add_epi32 simde_mm512_add_epi32
#undef _mm512_add_ps
#define _mm512_add_ps simde_mm512_add_ps
#undef _mm512_and_si512
#define _mm512_and_si512 simde_mm512_and_si512
#undef _mm512_andnot_si512
#define _mm512_andnot_si512 simde_mm512_andnot_si512
#undef _mm512_castps_si512
#define _mm512_castps_si512 simde_mm512_castps_si512
#undef _mm512_castsi512_ps
#define _mm512_castsi512_ps simde_mm512_castsi512_ps
#undef _mm512_cmp_ps_mask
#define _mm512_cmp_ps_mask simde_mm512_cmp_ps_mask
#undef _mm512_div_ps
#define _mm512_div_ps simde_mm512_div_ps
#undef _mm512_dpbusd_epi32
#define _mm512_dpbusd_epi32 simde_mm512_dpbusd_epi32
#undef _mm512_dpwssd_epi32
#define _mm512_dpwssd_epi32 simde_mm512_dpwssd_epi32
#undef _mm512_loadu_ps
#define _mm512_loadu_ps simde_mm512_loadu_ps
#undef _mm512_loadu_si512
#define _mm512_loadu_si512 simde_mm512_loadu_si512
#undef _mm512_mask_blend_ps
#define _mm512_mask_blend_ps simde_mm512_mask_blend_ps
#undef _mm512_max_ps
#define _mm512_max_ps simde_mm512_max_ps
#undef _mm512_min_ps
#define _mm512_min_ps simde_mm512_min_ps
#undef _mm512_mul_ps
#define _mm512_mul_ps simde_mm512_mul_ps
#undef _mm512_mullo_epi32
#define _mm512_mullo_epi32 simde_mm512_mullo_epi32
#undef _mm512_or_si512
#define _mm512_or_si512 simde_mm512_or_si512
#undef _mm512_set1_epi32
#define _mm512_set1_epi32 simde_mm512_set1_epi32
#undef _mm512_set1_ps
#define _mm512_set1_ps simde_mm512_set1_ps
#undef _mm512_setzero_ps
#define _mm512_setzero_ps simde_mm512_setzero_ps
#undef _mm512_setzero_si512
#define _mm512_setzero_si512 simde_mm512_setzero_si512
#undef _mm512_slli_epi32
#define _mm512_slli_epi32 simde_mm512_slli_epi32
#undef _mm512_srli_epi32
#define _mm512_srli_epi32 simde_mm512_srli_epi32
#undef _mm512_storeu_si512
#define _mm512_storeu_si512 simde_mm512_storeu_si512
#undef _mm512_storeu_ps
#define _mm512_storeu_ps simde_mm512_storeu_ps
#undef _mm512_sub_epi32
#define _mm512_sub_epi32 simde_mm512_sub_epi32
#undef _mm512_sub_ps
#define _mm512_sub_ps simde_mm512_sub_ps
#undef _mm512_xor_si512
#define _mm512_xor_si512 simde_mm512_xor_si512
#undef _mm256_dpbusd_epi32
#define _mm256_dpbusd_epi32 simde_mm256_dpbusd_epi32
#undef _mm256_dpwssd_epi32
#define _mm256_dpwssd_epi32 simde_mm256_dpwssd_epi32
