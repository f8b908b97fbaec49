// Q2_K {u8 scales[16]; u8 qs[64]; f16 d, dmin}: 16 sub-blocks of 16; d * (scale & 15) * q - dmin * (scale >> 4).
// Value 128 h + 32 p + l is bits 2p of qs[32 h + l].
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

struct Q2_K {
  static constexpr Dtype kDtype = Dtype::q2_k;
  static constexpr int kBlock = 256, kBytes = 84, kScaleAt = 80, kMinAt = 82, kSub = 16, kMaxCode = 3, kOffset = 0, kFields = 2, kMaxScale = 15;
  static void codes(const uint8_t* b, int8_t* w) {
    for (int k = 0; k < 256; k++) w[k] = int8_t((b[16 + k / 128 * 32 + k % 32] >> (k / 32 % 4 * 2)) & 3);
  }
  static void scales(const uint8_t* b, int16_t* sc, int16_t* mn) {
    for (int j = 0; j < 16; j++) {
      sc[j] = int16_t(b[j] & 15);
      mn[j] = int16_t(b[j] >> 4);
    }
  }
  template <class L>
  static typename L::V x16_codes(const uint8_t* w, int i) {
    return L::bit_and(L::right(L::word(w, 4 + i / 32 * 8 + i % 8), i / 8 % 4 * 2), L::set(0x03030303));
  }
  template <class L>
  static typename L::V x16_scales(const uint8_t*, const uint8_t* w, int p) {
    return L::pair(L::bit_and(L::word(w, p / 2), L::set(0x0f0f0f0f)), p % 2 * 2);
  }
  template <class L>
  static typename L::V x16_mins(const uint8_t*, const uint8_t* w, int p) {
    return L::pair(L::bit_and(L::right(L::word(w, p / 2), 4), L::set(0x0f0f0f0f)), p % 2 * 2);
  }
#if TL_AVX2
  static __m256i codes32(const uint8_t* b, int j) {
    return _mm256_and_si256(_mm256_srli_epi16(load256(b + 16 + j / 4 * 32), j % 4 * 2), _mm256_set1_epi8(3));
  }
  static void scales16(const uint8_t* b, __m256i* sc, __m256i* mn) {
    const __m128i s = load128(b), low = _mm_set1_epi8(15);
    *sc = _mm256_cvtepu8_epi16(_mm_and_si128(s, low));
    *mn = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(s, 4), low));
  }
#elif TL_NEON
  static int8x16x2_t codes32(const uint8_t* b, int j) { return field32(b + 16 + j / 4 * 32, j % 4 * 2, 3); }
#endif
};

}  // namespace
}  // namespace tealight::kernels
