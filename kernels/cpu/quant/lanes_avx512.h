// The 16 rows of a group in one register; see lanes_avx2.h. Include after vec/avx512.h.
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

struct Lanes512 {
  using V = __m512i;
  using F = __m512;
  static constexpr int kParts = 1;

  static V word(const uint8_t* w, int i) { return _mm512_loadu_si512(w + i * 64); }
  static V field(const uint8_t* f, int i) { return _mm512_cvtepu16_epi32(load256(f + i * 32)); }
  static F half(const uint8_t* f, int i) { return _mm512_cvtph_ps(load256(f + i * 32)); }
  static V set(int32_t v) { return _mm512_set1_epi32(v); }
  static V bit_and(V a, V b) { return _mm512_and_si512(a, b); }
  static V bit_or(V a, V b) { return _mm512_or_si512(a, b); }
  static V right(V v, int n) { return _mm512_srli_epi32(v, unsigned(n)); }
  static V left(V v, int n) { return _mm512_slli_epi32(v, unsigned(n)); }
  static V min8(V a, V b) { return _mm512_min_epu8(a, b); }
  static V sub16(V v, int n) { return _mm512_sub_epi16(v, set(n | n << 16)); }
  static V look_up(const int8_t* book, V index) { return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load128(book)), index); }
  static V spread(V v, int b) { return _mm512_shuffle_epi8(v, each(b * 0x01010101)); }
  static V pair(V v, int b) { return _mm512_shuffle_epi8(v, each(b | (b + 1) << 16, int32_t(0x80008000))); }
  static V pair_signed(V v, int b) { return _mm512_srai_epi16(_mm512_shuffle_epi8(v, each(b << 8 | (b + 1) << 24)), 8); }
  static V load(const void* p) { return _mm512_loadu_si512(p); }
  static V bit_xor(V a, V b) { return _mm512_xor_si512(a, b); }
  static V right_signed(V v, int n) { return _mm512_srai_epi32(v, unsigned(n)); }
  static V add(V a, V b) { return _mm512_add_epi32(a, b); }
  static V sub(V a, V b) { return _mm512_sub_epi32(a, b); }
  static V mul(V a, V b) { return _mm512_mullo_epi32(a, b); }
  static V dot(V acc, V u, V s) { return _mm512_dpbusd_epi32(acc, u, s); }
  static V pairs(V acc, V a, V b) { return _mm512_dpwssd_epi32(acc, a, b); }
  static F load_real(const float* p) { return _mm512_loadu_ps(p); }
  static F real(float v) { return _mm512_set1_ps(v); }
  static F to_real(V v) { return _mm512_cvtepi32_ps(v); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  static void store(void* to, V v) { _mm512_storeu_si512(to, v); }
  static void store(float* to, F v) { _mm512_storeu_ps(to, v); }

 private:
  static V each(int32_t bytes, int32_t zero = 0) {
    const __m128i lane = _mm_add_epi8(_mm_set1_epi32(bytes), _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    return _mm512_broadcast_i32x4(_mm_or_si128(_mm_set1_epi32(zero), lane));
  }
};

}  // namespace
}  // namespace tealight::kernels
