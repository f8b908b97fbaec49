// IQ4_NL {f16 d; u8 qs[16]}: d * book[q], nibbles as in Q4_0, an uneven book of 16 signed bytes.
#pragma once
#include "kernels/cpu/types/q4_0.h"

namespace tealight::kernels {
namespace {

constexpr int8_t kIq4Book[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

inline void book_codes(const uint8_t* qs, int8_t* w) {
  nibbles(qs, 16, w);
  for (int i = 0; i < 32; i++) w[i] = kIq4Book[int(w[i])];
}
#if TL_AVX2
inline __m256i book_codes32(const uint8_t* qs) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load128(kIq4Book)), nibbles32(qs));
}
#elif TL_NEON
inline int8x16x2_t book_codes32(const uint8_t* qs) {
  const int8x16_t book = vld1q_s8(kIq4Book);
  const int8x16x2_t at = nibbles32(qs);
  return {{vqtbl1q_s8(book, vreinterpretq_u8_s8(at.val[0])), vqtbl1q_s8(book, vreinterpretq_u8_s8(at.val[1]))}};
}
#endif

struct IQ4_NL {
  static constexpr Dtype kDtype = Dtype::iq4_nl;
  static constexpr int kBlock = 32, kBytes = 18, kScaleAt = 0, kMinAt = -1, kSub = 32, kMaxCode = 0, kOffset = 0, kFields = 1;
  static void codes(const uint8_t* b, int8_t* w) { book_codes(b + 2, w); }
  template <class L>
  static typename L::V x16_codes(const uint8_t* w, int i) { return L::look_up(kIq4Book, x16_nibbles<L>(w, i)); }
#if TL_AVX2
  static __m256i codes32(const uint8_t* b, int) { return book_codes32(b + 2); }
#elif TL_NEON
  static int8x16x2_t codes32(const uint8_t* b, int) { return book_codes32(b + 2); }
#endif
};

}  // namespace
}  // namespace tealight::kernels
