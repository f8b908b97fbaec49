// 8 of the 16 rows of a group, a row a lane of 32 bits: what the types' x16 code is made of. Include after vec/avx2.h and plain_avx.h's
// dot_add and madd_add.
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

struct Lanes256 {
  using V = __m256i;
  using F = __m256;
  static constexpr int kParts = 2;                           // that make 16 rows

  // Word i of a block whose words begin at w (64 bytes for 16 rows); field i as an unsigned number, as a half.
  static V word(const uint8_t* w, int i) { return load256(w + i * 64); }
  static V field(const uint8_t* f, int i) { return _mm256_cvtepu16_epi32(load128(f + i * 32)); }
  static F half(const uint8_t* f, int i) { return _mm256_cvtph_ps(load128(f + i * 32)); }
  static V set(int32_t v) { return _mm256_set1_epi32(v); }
  static V bit_and(V a, V b) { return _mm256_and_si256(a, b); }
  static V bit_or(V a, V b) { return _mm256_or_si256(a, b); }
  static V right(V v, int n) { return _mm256_srli_epi32(v, n); }
  static V left(V v, int n) { return _mm256_slli_epi32(v, n); }
  static V min8(V a, V b) { return _mm256_min_epu8(a, b); }  // of unsigned bytes
  static V sub16(V v, int n) { return _mm256_sub_epi16(v, _mm256_set1_epi16(short(n))); }
  static V look_up(const int8_t* book, V index) { return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load128(book)), index); }
  // Byte b of each lane in all four.
  static V spread(V v, int b) { return _mm256_shuffle_epi8(v, each(b * 0x01010101)); }
  // Bytes b and b + 1 of each lane in its 16-bit halves.
  static V pair(V v, int b) { return _mm256_shuffle_epi8(v, each(b | (b + 1) << 16, int32_t(0x80008000))); }
  static V pair_signed(V v, int b) { return _mm256_srai_epi16(_mm256_shuffle_epi8(v, each(b << 8 | (b + 1) << 24)), 8); }
  // The lower, or the upper, half of each lane in both.
  static V twice(V v, int half) { return _mm256_shuffle_epi8(v, each(half ? 0x03020302 : 0x01000100)); }
  // What vnni.h needs besides.
  static V load(const void* p) { return load256(p); }
  static V bit_xor(V a, V b) { return _mm256_xor_si256(a, b); }
  static V right_signed(V v, int n) { return _mm256_srai_epi32(v, n); }
  static V add(V a, V b) { return _mm256_add_epi32(a, b); }
  static V sub(V a, V b) { return _mm256_sub_epi32(a, b); }
  static V mul(V a, V b) { return _mm256_mullo_epi32(a, b); }
  static V dot(V acc, V u, V s) { return dot_add(acc, u, s); }
  static V pairs(V acc, V a, V b) { return madd_add(acc, a, b); }
  static F load_real(const float* p) { return _mm256_loadu_ps(p); }
  static F real(float v) { return _mm256_set1_ps(v); }
  static F to_real(V v) { return _mm256_cvtepi32_ps(v); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
  static void store(void* to, V v) { _mm256_storeu_si256(static_cast<__m256i*>(to), v); }
  static void store(float* to, F v) { _mm256_storeu_ps(to, v); }

 private:
  // Byte numbers within each lane, as a control of a shuffle.
  static V each(int32_t bytes, int32_t zero = 0) {
    return _mm256_or_si256(set(zero), _mm256_add_epi8(set(bytes), _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c)));
  }
};

}  // namespace
}  // namespace tealight::kernels
