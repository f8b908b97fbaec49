// Q6_K {u8 ql[128]; u8 qh[64]; i8 scales[16]; f16 d}: 16 sub-blocks of 16; d * scale * (q - 32).
// Value 128 h + 32 p + l: low four bits are nibble p / 2 of ql[64 h + 32 (p % 2) + l], high two are bits 2p of qh[32 h + l].
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

struct Q6_K {
  static constexpr Dtype kDtype = Dtype::q6_k;
  static constexpr int kBlock = 256, kBytes = 210, kScaleAt = 208, kMinAt = -1, kSub = 16, kMaxCode = 63, kOffset = 32, kFields = 1, kMaxScale = 128;
  static void codes(const uint8_t* b, int8_t* w) {
    for (int k = 0; k < 256; k++) {
      const int h = k / 128, p = k / 32 % 4, l = k % 32;
      const int low = (b[64 * h + 32 * (p % 2) + l] >> (p / 2 * 4)) & 15;
      w[k] = int8_t(low | ((b[128 + 32 * h + l] >> (2 * p)) & 3) << 4);
    }
  }
  static void scales(const uint8_t* b, int16_t* sc, int16_t*) {
    for (int j = 0; j < 16; j++) sc[j] = int8_t(b[192 + j]);
  }
  template <class L>
  static typename L::V x16_codes(const uint8_t* w, int i) {   // words: scales 0..3, ql 4..35, qh 36..51
    const int h = i / 32, p = i / 8 % 4;
    const typename L::V ql = L::right(L::word(w, 4 + 16 * h + 8 * (p % 2) + i % 8), p / 2 * 4), qh = L::word(w, 36 + 8 * h + i % 8);
    const typename L::V high = p < 2 ? L::left(qh, 4 - 2 * p) : L::right(qh, 2 * p - 4);
    return L::bit_or(L::bit_and(ql, L::set(0x0f0f0f0f)), L::bit_and(high, L::set(0x30303030)));
  }
  template <class L>
  static typename L::V x16_scales(const uint8_t*, const uint8_t* w, int p) { return L::pair_signed(L::word(w, p / 2), p % 2 * 2); }
#if TL_AVX2
  static __m256i codes32(const uint8_t* b, int j) {
    const int h = j / 4, p = j % 4;
    const __m256i ql = _mm256_srli_epi16(load256(b + 64 * h + 32 * (p % 2)), p / 2 * 4), qh = load256(b + 128 + 32 * h);
    const __m256i high = p < 2 ? _mm256_slli_epi16(qh, 4 - 2 * p) : _mm256_srli_epi16(qh, 2 * p - 4);
    return _mm256_or_si256(_mm256_and_si256(ql, _mm256_set1_epi8(15)), _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
  }
  static void scales16(const uint8_t* b, __m256i* sc, __m256i*) { *sc = _mm256_cvtepi8_epi16(load128(b + 192)); }
#elif TL_NEON
  static int8x16x2_t codes32(const uint8_t* b, int j) {
    const int h = j / 4, p = j % 4;
    const int8x16x2_t high = field32(b + 128 + 32 * h, 2 * p, 3);
    return or32(field32(b + 64 * h + 32 * (p % 2), p / 2 * 4, 15), {{vshlq_n_s8(high.val[0], 4), vshlq_n_s8(high.val[1], 4)}});
  }
#endif
};

}  // namespace
}  // namespace tealight::kernels
