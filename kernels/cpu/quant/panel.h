// Sixteen weight rows unpacked side by side for many tokens. Lanes are rows, so that no horizontal sum exists and one
// 4-byte word of codes meets one broadcast word of activations.
//   code   [k / 4][16][4]            codes in rising k
//   d, m   float [k / B][16]         the f16 fields
//   sc, mn int16 [k / kSub / 2][16][2]   256 family: sub-scales and minima of two neighbouring sub-blocks
#pragma once
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/types/types.h"

namespace tealight::kernels {

struct Panel {
  uint8_t* code;
  float *d, *m;
  int16_t *sc, *mn;
};

namespace {

// What a product of panels depends on; types with the same shape share its code.
template <int block, int sub, int max_code, int offset, bool has_min>
struct ShapeOf {
  static constexpr int kBlock = block, kSub = sub, kMaxCode = max_code, kOffset = offset;
  static constexpr bool kMin = has_min;
};
template <class Type>
using Shape = ShapeOf<Type::kBlock, Type::kSub, Type::kMaxCode, Type::kOffset, (Type::kMinAt >= 0)>;

// Where a panel of kIntPiece values of k lies; `block` is that of the type.
inline Panel panel_in(void* scratch, int block) {
  Panel p{};
  p.code = static_cast<uint8_t*>(scratch);
  p.d = reinterpret_cast<float*>(p.code + kIntPiece * 16);
  p.m = p.d + kIntPiece / block * 16;
  p.sc = reinterpret_cast<int16_t*>(p.m + kIntPiece / block * 16);
  p.mn = p.sc + kIntPiece;
  static_assert(kIntPiece / 256 * 128 + kIntPiece * 4 <= kIntPiece * 5 && kIntPiece / 32 * 128 <= kIntPiece * 5);
  return p;
}

}  // namespace
}  // namespace tealight::kernels
