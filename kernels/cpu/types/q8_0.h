// Q8_0 {f16 d; i8 qs[32]}: d * q
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

struct Q8_0 {
  static constexpr Dtype kDtype = Dtype::q8_0;
  static constexpr int kBlock = 32, kBytes = 34, kScaleAt = 0, kMinAt = -1, kSub = 32, kMaxCode = 0, kOffset = 0, kFields = 1;
  static void codes(const uint8_t* b, int8_t* w) { memcpy(w, b + 2, 32); }
  template <class L>
  static typename L::V x16_codes(const uint8_t* w, int i) { return L::word(w, i); }
#if TL_AVX2
  static __m256i codes32(const uint8_t* b, int) { return load256(b + 2); }
#elif TL_NEON
  static int8x16x2_t codes32(const uint8_t* b, int) { return {{load_s8(b + 2), load_s8(b + 18)}}; }
#endif
};

}  // namespace
}  // namespace tealight::kernels
