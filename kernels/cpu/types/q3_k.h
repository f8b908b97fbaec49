// Q3_K {u8 hmask[32]; u8 qs[64]; u8 scales[12]; f16 d}: 16 sub-blocks of 16; d * (scale - 32) * (q - 4).
// Value 128 h + 32 p + l: two low bits are bits 2p of qs[32 h + l], the third is bit 4h + p of hmask[l].
// Sub-scale j, six bits: low four in nibble j / 8 of scales[j % 8], high two in bits 2 (j / 4) of scales[8 + j % 4].
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

struct Q3_K {
  static constexpr Dtype kDtype = Dtype::q3_k;
  static constexpr int kBlock = 256, kBytes = 110, kScaleAt = 108, kMinAt = -1, kSub = 16, kMaxCode = 7, kOffset = 4, kFields = 1, kMaxScale = 32;
  static void codes(const uint8_t* b, int8_t* w) {
    for (int k = 0; k < 256; k++) {
      const int h = k / 128, p = k / 32 % 4, l = k % 32;
      w[k] = int8_t(((b[32 + h * 32 + l] >> (2 * p)) & 3) | ((b[l] >> (4 * h + p)) & 1) << 2);
    }
  }
  static void scales(const uint8_t* b, int16_t* sc, int16_t*) {
    const uint8_t* s = b + 96;
    for (int j = 0; j < 16; j++)
      sc[j] = int16_t((((s[j % 8] >> (j / 8 * 4)) & 15) | ((s[8 + j % 4] >> (j / 4 * 2)) & 3) << 4) - 32);
  }
  template <class L>
  static typename L::V x16_codes(const uint8_t* w, int i) {   // words: scales 0..2, hmask 3..10, qs 11..26
    const int j = i / 8;
    const typename L::V low = L::bit_and(L::right(L::word(w, 11 + j / 4 * 8 + i % 8), j % 4 * 2), L::set(0x03030303));
    const typename L::V mask = L::word(w, 3 + i % 8), high = j < 2 ? L::left(mask, 2 - j) : L::right(mask, j - 2);
    return L::bit_or(low, L::bit_and(high, L::set(0x04040404)));
  }
  template <class L>
  static typename L::V x16_scales(const uint8_t*, const uint8_t* w, int p) {
    const int of = p / 2;   // four sub-scales
    const typename L::V low = L::right(L::word(w, of % 2), of / 2 * 4), top = L::word(w, 2);
    const typename L::V high = of < 2 ? L::left(top, 4 - 2 * of) : L::right(top, 2 * of - 4);
    const typename L::V v = L::bit_or(L::bit_and(low, L::set(0x0f0f0f0f)), L::bit_and(high, L::set(0x30303030)));
    return L::sub16(L::pair(v, p % 2 * 2), 32);
  }
#if TL_AVX2
  static __m256i codes32(const uint8_t* b, int j) {
    const __m256i low = _mm256_and_si256(_mm256_srli_epi16(load256(b + 32 + j / 4 * 32), j % 4 * 2), _mm256_set1_epi8(3));
    const __m256i mask = load256(b), one = _mm256_set1_epi8(4);
    const __m256i high = j < 2 ? _mm256_slli_epi16(mask, 2 - j) : _mm256_srli_epi16(mask, j - 2);
    return _mm256_or_si256(low, _mm256_and_si256(high, one));
  }
  static void scales16(const uint8_t* b, __m256i* sc, __m256i*) {
    uint32_t s[3];
    memcpy(s, b + 96, 12);
    const uint32_t low = 0x0f0f0f0f, two = 0x03030303;
    const __m128i v = _mm_setr_epi32(int((s[0] & low) | (s[2] & two) << 4), int((s[1] & low) | (s[2] >> 2 & two) << 4),
                                     int((s[0] >> 4 & low) | (s[2] >> 4 & two) << 4),
                                     int((s[1] >> 4 & low) | (s[2] >> 6 & two) << 4));
    *sc = _mm256_cvtepi8_epi16(_mm_sub_epi8(v, _mm_set1_epi8(32)));
  }
#elif TL_NEON
  static int8x16x2_t codes32(const uint8_t* b, int j) {
    return or32(field32(b + 32 + j / 4 * 32, j % 4 * 2, 3), where_bit(b, j, 4));
  }
#endif
};

}  // namespace
}  // namespace tealight::kernels
