// Sixteen weight rows unpacked side by side for many tokens. Lanes are rows, so that no horizontal sum exists and one
// 4-byte word of codes meets one broadcast word of activations.
//   code   [k / 4][16][4]            codes in rising k
//   d, m   float [k / B][16]         the f16 fields
//   sc, mn int16 [k / kSub / 2][16][2]   256 family: sub-scales and minima of two neighbouring sub-blocks
// NEON differs in two things: kOffset is already taken from the codes, and sc, mn are [k / kSub][16].
#pragma once
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/types/types.h"

namespace tealight::kernels {
namespace {

// What a product of panels depends on; types with the same shape share its code.
template <int block, int sub, int max_code, int offset, bool has_min>
struct ShapeOf {
  static constexpr int kBlock = block, kSub = sub, kMaxCode = max_code, kOffset = offset;
  static constexpr bool kMin = has_min;
};
template <class Type>
using Shape = ShapeOf<Type::kBlock, Type::kSub, Type::kMaxCode, Type::kOffset, (Type::kMinAt >= 0)>;

struct Panel {
  uint8_t* code;
  float *d, *m;
  int16_t *sc, *mn;
};

template <class Type>
inline Panel panel_in(void* scratch) {
  Panel p{};
  p.code = static_cast<uint8_t*>(scratch);
  p.d = reinterpret_cast<float*>(p.code + kIntPiece * 16);
  p.m = p.d + kIntPiece / Type::kBlock * 16;
  p.sc = reinterpret_cast<int16_t*>(p.m + kIntPiece / Type::kBlock * 16);
  p.mn = p.sc + kIntPiece / Type::kSub * 16;
  static_assert(Type::kBlock == 32 || kIntPiece / 256 * 128 + kIntPiece / Type::kSub * 64 <= kIntPiece * 5);
  return p;
}

#if TL_AVX2
// The f16 fields of 8 rows.
inline __m256 halves8(const uint8_t* const* row, size_t at) {
  const __m128i v = _mm_setr_epi16(short(load_u16(row[0] + at)), short(load_u16(row[1] + at)), short(load_u16(row[2] + at)),
                                   short(load_u16(row[3] + at)), short(load_u16(row[4] + at)), short(load_u16(row[5] + at)),
                                   short(load_u16(row[6] + at)), short(load_u16(row[7] + at)));
  return _mm256_cvtph_ps(v);
}

// Blocks b0 .. b0 + blocks - 1 of rows r .. r + 15 (rows beyond `last` repeat it).
template <class Type>
[[gnu::noinline]] void fill_panel(const void* w, size_t stride, int r, int last, int b0, int blocks, const Panel& p) {
  constexpr int B = Type::kBlock, kPairs = B / Type::kSub / 2;
  for (int h = 0; h < 16; h += 8) {
    const uint8_t* row[8];
    for (int i = 0; i < 8; i++)
      row[i] = static_cast<const uint8_t*>(w) + size_t(min_int(r + h + i, last)) * stride + size_t(b0) * Type::kBytes;
    for (int b = 0; b < blocks; b++) {
      TL_UNROLL for (int j = 0; j < B / 32; j++) {
        __m256i v[8];
        TL_UNROLL for (int i = 0; i < 8; i++) v[i] = Type::codes32(row[i], j);
        transpose8(v);
        uint8_t* to = p.code + size_t(b * B + j * 32) * 16 + h * 4;
        TL_UNROLL for (int i = 0; i < 8; i++) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * 64), v[i]);
      }
      _mm256_storeu_ps(p.d + b * 16 + h, halves8(row, Type::kScaleAt));
      if constexpr (Type::kMinAt >= 0) _mm256_storeu_ps(p.m + b * 16 + h, halves8(row, Type::kMinAt));
      if constexpr (B == 256) {
        __m256i sc[8], mn[8];
        TL_UNROLL for (int i = 0; i < 8; i++) Type::scales16(row[i], sc + i, mn + i);
        transpose8(sc);
        int16_t* to = p.sc + b * kPairs * 32 + h * 2;
        TL_UNROLL for (int i = 0; i < kPairs; i++) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * 32), sc[i]);
        if constexpr (Type::kMinAt >= 0) {
          transpose8(mn);
          to = p.mn + b * kPairs * 32 + h * 2;
          TL_UNROLL for (int i = 0; i < kPairs; i++) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * 32), mn[i]);
        }
      }
      for (int i = 0; i < 8; i++) {
        row[i] += Type::kBytes;
        for (int l = 0; l < Type::kBytes; l += 64) __builtin_prefetch(row[i] + l + 512);
      }
    }
  }
}
#endif

}  // namespace
}  // namespace tealight::kernels
