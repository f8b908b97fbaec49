// Integer rows times quantized activations; the written order is in quant/ref.cpp.
//   few tokens   rows as they lie, 8 side by side: inside a row lanes are k; integer sums are folded so that lanes are rows
//   else         16 rows at a time are unpacked into a panel and multiplied with tiles of tokens
#pragma once
#include "kernels/cpu/act.h"
#include "kernels/cpu/quant/panel.h"

namespace tealight::kernels {
namespace {

// Each set's own:
// 8 rows `stride` bytes apart times one token
template <class Type>
void rows8(const uint8_t* w, size_t stride, int blocks, const ActTile& a, float* out);
// blocks b0 .. b0 + blocks - 1 of rows r .. r + 15 (rows beyond `last` repeat it)
template <class Type>
void fill_panel(const void* w, size_t stride, int r, int last, int b0, int blocks, const Panel& p);
// a panel, whose first block is b, times tokens t0..t1-1 of T
template <class S>
void panel_tokens(const Panel& p, int blocks, const void* act, int K, int b, int t0, int t1, int T, float* y, size_t ldy, int rows,
                  bool first);

template <class Type>
void few_tokens(const void* w, int K, const void* act, int T, float* y, size_t ldy, int r0, int r1) {
  constexpr Family family = Type::kBlock == 32 ? Family::block32 : Family::block256;
  const int blocks = K / Type::kBlock;
  const size_t stride = size_t(blocks) * Type::kBytes;
  const auto rows = [&](int r, size_t step, int n) {
    for (int t = 0; t < T; t++) {
      float tmp[8];
      rows8<Type>(static_cast<const uint8_t*>(w) + size_t(r) * stride, step, blocks, act_tile(family, act, K, t, 1), tmp);
      memcpy(y + size_t(t) * ldy + r, tmp, size_t(n) * 4);
    }
  };
  int r = r0;
  for (; r + 8 <= r1; r += 8) rows(r, stride, 8);
  if (r < r1 && r1 - r0 >= 8) rows(r1 - 8, stride, 8);       // the last 8 again, some computed twice
  else for (; r < r1; r++) rows(r, 0, 1);                    // fewer than 8: the same row in every lane
}

// Rows r0..r1-1 times all T tokens; fill(row, first block, blocks, panel) unpacks 16 rows.
template <class Type, class Fill>
inline void matmul_panels(int K, const void* act, int T, float* y, size_t ldy, int r0, int r1, void* scratch, const Fill& fill) {
  constexpr int B = Type::kBlock, kPiece = kIntPiece / B;
  const int blocks = K / B;
  const Panel p = panel_in<Type>(scratch);
  // As many tokens at a time as stay in the second cache, but enough to pay for the panels.
  const int some = K > 4096 ? 64 : (256 * 1024 / K + 7) & ~7;
  for (int t = 0; t < T; t += some)
    for (int r = r0; r < r1; r += 16)
      for (int b = 0; b < blocks; b += kPiece) {
        const int n = min_int(kPiece, blocks - b);
        fill(r, b, n, p);
        panel_tokens<Shape<Type>>(p, n, act, K, b, t, min_int(T, t + some), T, y + r, ldy, min_int(16, r1 - r), b == 0);
      }
}

template <class Type>
void matmul_int(const void* w, int K, const void* act, int T, float* y, size_t ldy, int r0, int r1, void* scratch) {
  if (T < kTile) return few_tokens<Type>(w, K, act, T, y, ldy, r0, r1);
  matmul_panels<Type>(K, act, T, y, ldy, r0, r1, scratch, [&](int r, int b, int n, const Panel& p) {
    fill_panel<Type>(w, row_bytes(Type::kDtype, size_t(K)), r, r1 - 1, b, n, p);
  });
}

// A tile's part from block b on.
template <class Type>
inline ActTile tile_from(const void* act, int K, int token, int n, int b) {
  constexpr int B = Type::kBlock;
  ActTile a = act_tile(B == 32 ? Family::block32 : Family::block256, act, K, token, n);
  a.q += size_t(b) * B * size_t(n);
  a.dx += b * n;
  if (B == 32) a.s += b * n, a.sum += b * n;
  else a.sum16 += b * 16 * n, a.sum32 += b * 8 * n;
  return a;
}

}  // namespace
}  // namespace tealight::kernels
