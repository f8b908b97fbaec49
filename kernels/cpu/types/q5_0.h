// Q5_0 and Q5_1: as Q4_0 and Q4_1 with a fifth bit; bit i of qh belongs to value i.
//   Q5_0 {f16 d; u32 qh; u8 qs[16]}: d * (q - 16)        Q5_1 {f16 d, m; u32 qh; u8 qs[16]}: d * q + m
#pragma once
#include "kernels/cpu/types/q4_0.h"

namespace tealight::kernels {
namespace {

inline void five_bits(const uint8_t* qh, const uint8_t* qs, int8_t* w) {
  nibbles(qs, 16, w);
  for (int i = 0; i < 32; i++) w[i] = int8_t(w[i] | ((qh[i / 8] >> (i % 8)) & 1) << 4);
}

template <class L>
inline typename L::V x16_five_bits(const uint8_t* w, int i) {
  const typename L::V qh = i % 2 ? L::word(w, 0) : L::left(L::word(w, 0), 4);   // its four bits are now the upper ones of a byte
  const typename L::V bit = L::bit_and(L::spread(qh, i / 2), L::set(0x80402010));
  return L::bit_or(x16_nibbles<L>(w + 64, i), L::min8(bit, L::set(0x10101010)));
}

struct Q5_0 {
  static constexpr Dtype kDtype = Dtype::q5_0;
  static constexpr int kBlock = 32, kBytes = 22, kScaleAt = 0, kMinAt = -1, kSub = 32, kMaxCode = 31, kOffset = 16, kFields = 1;
  static void codes(const uint8_t* b, int8_t* w) { five_bits(b + 2, b + 6, w); }
  template <class L>
  static typename L::V x16_codes(const uint8_t* w, int i) { return x16_five_bits<L>(w, i); }
#if TL_AVX2
  static __m256i codes32(const uint8_t* b, int) { return _mm256_or_si256(nibbles32(b + 6), spread_bits(b + 2, 16)); }
#elif TL_NEON
  static int8x16x2_t codes32(const uint8_t* b, int) { return or32(nibbles32(b + 6), spread_bits(b + 2, 16)); }
#endif
};
struct Q5_1 {
  static constexpr Dtype kDtype = Dtype::q5_1;
  static constexpr int kBlock = 32, kBytes = 24, kScaleAt = 0, kMinAt = 2, kSub = 32, kMaxCode = 31, kOffset = 0, kFields = 2;
  static void codes(const uint8_t* b, int8_t* w) { five_bits(b + 4, b + 8, w); }
  template <class L>
  static typename L::V x16_codes(const uint8_t* w, int i) { return x16_five_bits<L>(w, i); }
#if TL_AVX2
  static __m256i codes32(const uint8_t* b, int) { return _mm256_or_si256(nibbles32(b + 8), spread_bits(b + 4, 16)); }
#elif TL_NEON
  static int8x16x2_t codes32(const uint8_t* b, int) { return or32(nibbles32(b + 8), spread_bits(b + 4, 16)); }
#endif
};

}  // namespace
}  // namespace tealight::kernels
