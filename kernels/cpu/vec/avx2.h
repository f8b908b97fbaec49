// Sixteen float lanes in two ymm registers, and the loads that the types' AVX2 code uses. Needs AVX2, FMA, F16C.
#pragma once
#define TL_AVX2 1
#include <immintrin.h>

#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

inline __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

// 32 bytes from 16: the low nibbles, then the high ones.
inline __m256i nibbles32(const uint8_t* p) {
  const __m128i v = load128(p);
  return _mm256_and_si256(_mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1), _mm256_set1_epi8(15));
}
// 32 bytes from 32 bits: `value` where bit i is set, else 0.
inline __m256i spread_bits(const uint8_t* p, char value) {
  int32_t b;
  memcpy(&b, p, 4);
  const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x(int64_t(0x8040201008040201));
  const __m256i v = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(b), byte), bit);
  return _mm256_and_si256(_mm256_cmpeq_epi8(v, bit), _mm256_set1_epi8(value));
}

// Lane j of v[i] goes to lane i of v[j].
inline void transpose8(__m256* v) {
  __m256 a[8];
  TL_UNROLL for (int i = 0; i < 4; i++) {
    a[2 * i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
  }
  TL_UNROLL for (int h = 0; h < 2; h++) {
    const __m256 l = a[4 * h], u = a[4 * h + 1], m = a[4 * h + 2], n = a[4 * h + 3];
    v[4 * h] = _mm256_shuffle_ps(l, m, 0x44);
    v[4 * h + 1] = _mm256_shuffle_ps(l, m, 0xee);
    v[4 * h + 2] = _mm256_shuffle_ps(u, n, 0x44);
    v[4 * h + 3] = _mm256_shuffle_ps(u, n, 0xee);
  }
  TL_UNROLL for (int i = 0; i < 4; i++) {
    const __m256 l = v[i], u = v[4 + i];
    v[i] = _mm256_permute2f128_ps(l, u, 0x20);
    v[4 + i] = _mm256_permute2f128_ps(l, u, 0x31);
  }
}
inline void transpose8(__m256i* v) {
  __m256 f[8];
  TL_UNROLL for (int i = 0; i < 8; i++) f[i] = _mm256_castsi256_ps(v[i]);
  transpose8(f);
  TL_UNROLL for (int i = 0; i < 8; i++) v[i] = _mm256_castps_si256(f[i]);
}

struct Vec256 {
  static constexpr int kRegisters = 8;
  __m256 a, b;

  static __m256i bits_of(__m256 x) { return _mm256_castps_si256(x); }
  static __m256 sign() { return _mm256_set1_ps(-0.0f); }
  static __m256 less(__m256 x, __m256 y, __m256 yes, __m256 no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(x, y, _CMP_LT_OQ));
  }
  static __m256 exponent(__m256 x, __m256 n) {
    return _mm256_castsi256_ps(_mm256_add_epi32(bits_of(x), _mm256_slli_epi32(bits_of(n), 23)));
  }

  static Vec256 set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Vec256 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static Vec256 load(const uint16_t* p) { return {_mm256_cvtph_ps(load128(p)), _mm256_cvtph_ps(load128(p + 8))}; }
  static __m256 widen8(const int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static Vec256 load(const int8_t* p) { return {widen8(p), widen8(p + 8)}; }
  void store(float* p) const {
    _mm256_storeu_ps(p, a);
    _mm256_storeu_ps(p + 8, b);
  }
  void store(uint16_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT));
  }
  static Vec256 add(Vec256 x, Vec256 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  static Vec256 sub(Vec256 x, Vec256 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  static Vec256 mul(Vec256 x, Vec256 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  static Vec256 div(Vec256 x, Vec256 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  static Vec256 fma(Vec256 x, Vec256 y, Vec256 z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  static Vec256 max(Vec256 x, Vec256 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  static Vec256 min(Vec256 x, Vec256 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  static Vec256 select_less(Vec256 x, Vec256 y, Vec256 yes, Vec256 no) {
    return {less(x.a, y.a, yes.a, no.a), less(x.b, y.b, yes.b, no.b)};
  }
  static Vec256 abs(Vec256 x) { return {_mm256_andnot_ps(sign(), x.a), _mm256_andnot_ps(sign(), x.b)}; }
  static Vec256 copysign(Vec256 x, Vec256 s) {
    x = abs(x);
    return {_mm256_or_ps(x.a, _mm256_and_ps(sign(), s.a)), _mm256_or_ps(x.b, _mm256_and_ps(sign(), s.b))};
  }
  static Vec256 add_exponent(Vec256 x, Vec256 n) { return {exponent(x.a, n.a), exponent(x.b, n.b)}; }
};
#if !TL_AVX512
using Vec = Vec256;
#endif

}  // namespace
}  // namespace tealight::kernels
