// Sizes of what attention computes with. Queries are the rows' heads, row by row.
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

constexpr int kPieceKeys = 64;           // V of so many keys is widened at once
// Of 16 columns of them: an odd number of lines, so that panels do not meet in the same sets of a cache.
constexpr size_t kPanelFloats = (kPieceKeys + 1) * 16;
constexpr int kPieceFloats = 4096;       // K of so many values (at least two tiles)

inline int max_int(int a, int b) { return a > b ? a : b; }
inline int up16(int n) { return (n + 15) & ~15; }

// The tiles that any row sees.
inline int first_tile(const Attention& a) { return a.seen[0].lo / 16; }
inline int end_tile(const Attention& a) { return (a.seen[a.rows - 1].hi + 15) / 16; }
// Floats of a query's scores: an odd number of lines, so that queries do not meet in the same sets of a cache.
inline size_t score_stride(int tiles) { return size_t(tiles | 1) * 16; }
inline size_t score_stride(const Attention& a) { return score_stride(end_tile(a) - first_tile(a)); }
inline int tiles_at_once(int d) { return max_int(2, kPieceFloats / (16 * d)); }

}  // namespace
}  // namespace tealight::kernels
