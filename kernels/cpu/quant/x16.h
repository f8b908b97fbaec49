// Groups of 16 rows in the x16 layout (kernels/cpu/x16.h), where lanes are rows.
#pragma once
#include "kernels/cpu/quant/panel.h"

namespace tealight::kernels {
namespace {

// Block b of a group: its fields, 32 bytes each, and its words, 64 bytes each.
struct X16Block {
  const uint8_t *fields, *words;
};
template <class Type>
inline X16Block x16_block(const uint8_t* group, int b) {
  constexpr int kEach = Type::kBlock == 32 ? 2 : 1, kWords = (Type::kBytes - 2 * Type::kFields) / 4;
  constexpr int kHead = (kEach * Type::kFields * 32 + 63) / 64 * 64, kChunk = kHead + kEach * kWords * 64;
  static_assert(kChunk == x16_chunk_bytes(Type::kDtype));
  const uint8_t* chunk = group + b / kEach * kChunk;
  const int half = b % kEach;
  return {chunk + half * Type::kFields * 32, chunk + kHead + half * kWords * 64};
}

// Blocks of 256 whose bits lie in several places, so that their lines are visited out of order.
template <class Type>
constexpr bool is_scattered() { return Type::kBlock == 256 && (Type::kSub == 16 || Type::kMaxCode == 31); }

// Asks for the lines of a stream that lie as far ahead of a block's lines, in as many shares as the block has steps, since the
// processor's own prefetching ends with a page: 8 KiB ahead (on a Zen 5, 1 KiB brought a quarter less, 4 KiB up to a tenth), and where
// lines are not wanted in their order, before that into the second cache (up to a third more).
template <class Type>
inline void stream_ahead(const uint8_t* block, int step, int steps) {
  constexpr int kLines = (16 * Type::kBytes + 63) / 64;
  TL_UNROLL for (int i = kLines * step / steps; i < kLines * (step + 1) / steps; i++) {
    __builtin_prefetch(block + i * 64 + 8192, 0, 3);
    if (is_scattered<Type>()) __builtin_prefetch(block + i * 64 + 16384, 0, 2);
  }
}

// Blocks b0 .. b0 + blocks - 1 of a group as a panel.
template <class Type, class L>
[[gnu::noinline]] void fill_x16(const uint8_t* group, int b0, int blocks, const Panel& p) {
  constexpr int kPairs = Type::kBlock / Type::kSub / 2, kQuads = Type::kBlock / 4;
  for (int b = 0; b < blocks; b++) {
    const X16Block at = x16_block<Type>(group, b0 + b);
    for (int h = 0; h < L::kParts; h++) {
      stream_ahead<Type>(at.words, h, L::kParts);
      const uint8_t *w = at.words + h * (64 / L::kParts), *f = at.fields + h * (32 / L::kParts);
      const int lane = h * (16 / L::kParts);
      uint8_t* code = p.code + (b * kQuads * 16 + lane) * 4;
      TL_UNROLL for (int j = 0; j < kQuads; j += 8) TL_UNROLL for (int i = j; i < j + 8; i++)
        L::store(code + i * 64, Type::template x16_codes<L>(w, i));
      L::store(p.d + b * 16 + lane, L::half(f, 0));
      if constexpr (Type::kMinAt >= 0) L::store(p.m + b * 16 + lane, L::half(f, 1));
      TL_UNROLL for (int i = 0; i < kPairs; i++) {
        if constexpr (kPairs > 0) L::store(p.sc + ((b * kPairs + i) * 16 + lane) * 2, Type::template x16_scales<L>(f, w, i));
        if constexpr (kPairs > 0 && Type::kMinAt >= 0) L::store(p.mn + ((b * kPairs + i) * 16 + lane) * 2, Type::template x16_mins<L>(f, w, i));
      }
    }
  }
}

}  // namespace
}  // namespace tealight::kernels
