// IQ4_XS {f16 d; u16 scales_h; u8 scales_l[4]; u8 qs[128]}: 8 sub-blocks of 32; d * (scale - 32) * book[q] (IQ4_NL's book).
// Sub-scale j: low four bits in nibble j % 2 of scales_l[j / 2], high two in bits 2j of scales_h; qs[16 j ..] as in IQ4_NL.
#pragma once
#include "kernels/cpu/types/iq4_nl.h"

namespace tealight::kernels {
namespace {

struct IQ4_XS {
  static constexpr Dtype kDtype = Dtype::iq4_xs;
  static constexpr int kBlock = 256, kBytes = 136, kScaleAt = 0, kMinAt = -1, kSub = 32, kMaxCode = 0, kOffset = 0, kFields = 2, kMaxScale = 32;
  static void codes(const uint8_t* b, int8_t* w) {
    for (int j = 0; j < 8; j++) book_codes(b + 8 + 16 * j, w + 32 * j);
  }
  static void scales(const uint8_t* b, int16_t* sc, int16_t*) {
    const int high = load_u16(b + 2);
    for (int j = 0; j < 8; j++)
      sc[j] = int16_t((((b[4 + j / 2] >> (j % 2 * 4)) & 15) | ((high >> (2 * j)) & 3) << 4) - 32);
  }
  template <class L>
  static typename L::V x16_codes(const uint8_t* w, int i) {
    return L::look_up(kIq4Book, x16_nibbles<L>(w + 64 + i / 8 * 256, i % 8));
  }
  template <class L>
  static typename L::V x16_scales(const uint8_t* f, const uint8_t* w, int p) {   // byte p of scales_l, bits 4 p of scales_h
    const typename L::V l = L::right(L::word(w, 0), 8 * p), h = L::right(L::field(f, 1), 4 * p);
    const typename L::V low = L::bit_or(L::bit_and(l, L::set(15)), L::bit_and(L::left(l, 12), L::set(15 << 16)));
    const typename L::V high = L::bit_or(L::bit_and(L::left(h, 4), L::set(0x30)), L::bit_and(L::left(h, 18), L::set(0x30 << 16)));
    return L::sub16(L::bit_or(low, high), 32);
  }
#if TL_AVX2
  static __m256i codes32(const uint8_t* b, int j) { return book_codes32(b + 8 + 16 * j); }
  static void scales16(const uint8_t* b, __m256i* sc, __m256i*) {
    int16_t s[8];
    scales(b, s, nullptr);
    *sc = _mm256_zextsi128_si256(load128(s));
  }
#elif TL_NEON
  static int8x16x2_t codes32(const uint8_t* b, int j) { return book_codes32(b + 8 + 16 * j); }
#endif
};

}  // namespace
}  // namespace tealight::kernels
