// Q4_0 and Q4_1: 32 values, byte i of qs holds value i (low nibble) and value 16 + i.
//   Q4_0 {f16 d; u8 qs[16]}: d * (q - 8)        Q4_1 {f16 d, m; u8 qs[16]}: d * q + m
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

inline void nibbles(const uint8_t* qs, int n, int8_t* w) {  // n low nibbles, then n high ones
  for (int i = 0; i < n; i++) {
    w[i] = int8_t(qs[i] & 15);
    w[n + i] = int8_t(qs[i] >> 4);
  }
}

// The same nibbles from the words of 16 rows.
template <class L>
inline typename L::V x16_nibbles(const uint8_t* w, int i) {
  return L::bit_and(i < 4 ? L::word(w, i) : L::right(L::word(w, i - 4), 4), L::set(0x0f0f0f0f));
}

struct Q4_0 {
  static constexpr Dtype kDtype = Dtype::q4_0;
  static constexpr int kBlock = 32, kBytes = 18, kScaleAt = 0, kMinAt = -1, kSub = 32, kMaxCode = 15, kOffset = 8, kFields = 1;
  static void codes(const uint8_t* b, int8_t* w) { nibbles(b + 2, 16, w); }
  template <class L>
  static typename L::V x16_codes(const uint8_t* w, int i) { return x16_nibbles<L>(w, i); }
#if TL_AVX2
  static __m256i codes32(const uint8_t* b, int) { return nibbles32(b + 2); }
#elif TL_NEON
  static int8x16x2_t codes32(const uint8_t* b, int) { return nibbles32(b + 2); }
#endif
};
struct Q4_1 {
  static constexpr Dtype kDtype = Dtype::q4_1;
  static constexpr int kBlock = 32, kBytes = 20, kScaleAt = 0, kMinAt = 2, kSub = 32, kMaxCode = 15, kOffset = 0, kFields = 2;
  static void codes(const uint8_t* b, int8_t* w) { nibbles(b + 4, 16, w); }
  template <class L>
  static typename L::V x16_codes(const uint8_t* w, int i) { return x16_nibbles<L>(w, i); }
#if TL_AVX2
  static __m256i codes32(const uint8_t* b, int) { return nibbles32(b + 4); }
#elif TL_NEON
  static int8x16x2_t codes32(const uint8_t* b, int) { return nibbles32(b + 4); }
#endif
};

}  // namespace
}  // namespace tealight::kernels
