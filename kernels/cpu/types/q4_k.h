// Q4_K {f16 d, dmin; u8 scales[12]; u8 qs[128]}: 8 sub-blocks of 32; d * scale * q - dmin * min.
// Value 64 p + l is the low nibble of qs[32 p + l], value 64 p + 32 + l the high one. Sub-scales and minima have six bits:
// j < 4: scales[j] & 63 and scales[4 + j] & 63; else a nibble of scales[4 + j] with the top two bits of scales[j - 4] and [j].
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

inline void six_bit_scales(const uint8_t* s, int16_t* sc, int16_t* mn) {
  for (int j = 0; j < 4; j++) {
    sc[j] = int16_t(s[j] & 63);
    mn[j] = int16_t(s[j + 4] & 63);
    sc[j + 4] = int16_t((s[j + 8] & 15) | (s[j] >> 6) << 4);
    mn[j + 4] = int16_t((s[j + 8] >> 4) | (s[j + 4] >> 6) << 4);
  }
}
// The same of 16 rows, sub-blocks 2 p and 2 p + 1; of the minima where `least` is 1.
template <class L>
inline typename L::V x16_six_bits(const uint8_t* w, int p, int least) {
  typename L::V v = L::word(w, least);
  if (p < 2) v = L::bit_and(v, L::set(0x3f3f3f3f));
  else v = L::bit_or(L::bit_and(L::right(L::word(w, 2), least * 4), L::set(0x0f0f0f0f)), L::bit_and(L::right(v, 2), L::set(0x30303030)));
  return L::pair(v, p % 2 * 2);
}
#if TL_AVX2
inline void six_bit_scales16(const uint8_t* p, __m256i* sc, __m256i* mn) {
  uint32_t s[3];
  memcpy(s, p, 12);
  const uint32_t low = 0x0f0f0f0f, six = 0x3f3f3f3f, top = 0x30303030;
  const __m128i v = _mm_setr_epi32(int(s[0] & six), int((s[2] & low) | (s[0] >> 2 & top)), int(s[1] & six),
                                   int((s[2] >> 4 & low) | (s[1] >> 2 & top)));
  const __m256i wide = _mm256_cvtepu8_epi16(v);
  *sc = wide;
  *mn = _mm256_permute2x128_si256(wide, wide, 0x11);
}
#endif

struct Q4_K {
  static constexpr Dtype kDtype = Dtype::q4_k;
  static constexpr int kBlock = 256, kBytes = 144, kScaleAt = 0, kMinAt = 2, kSub = 32, kMaxCode = 15, kOffset = 0, kFields = 2, kMaxScale = 63;
  static void codes(const uint8_t* b, int8_t* w) {
    for (int k = 0; k < 256; k++) w[k] = int8_t((b[16 + k / 64 * 32 + k % 32] >> (k / 32 % 2 * 4)) & 15);
  }
  static void scales(const uint8_t* b, int16_t* sc, int16_t* mn) { six_bit_scales(b + 4, sc, mn); }
  template <class L>
  static typename L::V x16_codes(const uint8_t* w, int i) {
    return L::bit_and(L::right(L::word(w, 3 + i / 16 * 8 + i % 8), i / 8 % 2 * 4), L::set(0x0f0f0f0f));
  }
  template <class L>
  static typename L::V x16_scales(const uint8_t*, const uint8_t* w, int p) { return x16_six_bits<L>(w, p, 0); }
  template <class L>
  static typename L::V x16_mins(const uint8_t*, const uint8_t* w, int p) { return x16_six_bits<L>(w, p, 1); }
#if TL_AVX2
  static __m256i codes32(const uint8_t* b, int j) {
    return _mm256_and_si256(_mm256_srli_epi16(load256(b + 16 + j / 2 * 32), j % 2 * 4), _mm256_set1_epi8(15));
  }
  static void scales16(const uint8_t* b, __m256i* sc, __m256i* mn) { six_bit_scales16(b + 4, sc, mn); }
#elif TL_NEON
  static int8x16x2_t codes32(const uint8_t* b, int j) { return field32(b + 16 + j / 2 * 32, j % 2 * 4, 15); }
#endif
};

}  // namespace
}  // namespace tealight::kernels
