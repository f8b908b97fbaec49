// Q5_K {f16 d, dmin; u8 scales[12]; u8 qh[32]; u8 qs[128]}: as Q4_K with a fifth bit: bit j of qh[l] for value 32 j + l.
#pragma once
#include "kernels/cpu/types/q4_k.h"

namespace tealight::kernels {
namespace {

struct Q5_K {
  static constexpr Dtype kDtype = Dtype::q5_k;
  static constexpr int kBlock = 256, kBytes = 176, kScaleAt = 0, kMinAt = 2, kSub = 32, kMaxCode = 31, kOffset = 0, kFields = 2, kMaxScale = 63;
  static void codes(const uint8_t* b, int8_t* w) {
    for (int k = 0; k < 256; k++) {
      const int low = (b[48 + k / 64 * 32 + k % 32] >> (k / 32 % 2 * 4)) & 15;
      w[k] = int8_t(low | ((b[16 + k % 32] >> (k / 32)) & 1) << 4);
    }
  }
  static void scales(const uint8_t* b, int16_t* sc, int16_t* mn) { six_bit_scales(b + 4, sc, mn); }
  template <class L>
  static typename L::V x16_codes(const uint8_t* w, int i) {   // words: scales 0..2, qh 3..10, qs 11..42
    const int j = i / 8;
    const typename L::V low = L::bit_and(L::right(L::word(w, 11 + j / 2 * 8 + i % 8), j % 2 * 4), L::set(0x0f0f0f0f));
    const typename L::V qh = L::word(w, 3 + i % 8), high = j < 4 ? L::left(qh, 4 - j) : L::right(qh, j - 4);
    return L::bit_or(low, L::bit_and(high, L::set(0x10101010)));
  }
  template <class L>
  static typename L::V x16_scales(const uint8_t*, const uint8_t* w, int p) { return x16_six_bits<L>(w, p, 0); }
  template <class L>
  static typename L::V x16_mins(const uint8_t*, const uint8_t* w, int p) { return x16_six_bits<L>(w, p, 1); }
#if TL_AVX2
  static __m256i codes32(const uint8_t* b, int j) {
    const __m256i low = _mm256_and_si256(_mm256_srli_epi16(load256(b + 48 + j / 2 * 32), j % 2 * 4), _mm256_set1_epi8(15));
    const __m256i qh = load256(b + 16);
    const __m256i high = j < 4 ? _mm256_slli_epi16(qh, 4 - j) : _mm256_srli_epi16(qh, j - 4);
    return _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(16)));
  }
  static void scales16(const uint8_t* b, __m256i* sc, __m256i* mn) { six_bit_scales16(b + 4, sc, mn); }
#elif TL_NEON
  static int8x16x2_t codes32(const uint8_t* b, int j) {
    return or32(field32(b + 48 + j / 2 * 32, j % 2 * 4, 15), where_bit(b + 16, j, 16));
  }
#endif
};

}  // namespace
}  // namespace tealight::kernels
