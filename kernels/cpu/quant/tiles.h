// Panels times one tile of tokens after the other.
#pragma once
#include "kernels/cpu/quant/quant.h"

namespace tealight::kernels {
namespace {

// A panel times a tile of T tokens; each set's own.
template <class S, int T>
void panel_tile(const Panel& p, int blocks, const ActTile& a, float* y, size_t ldy, bool first);

template <class Type>
void panel_tokens(const Panel& p, int blocks, const void* act, int K, int b, int t0, int t1, int T, float* y, size_t ldy, int rows,
                  bool first) {
  float tmp[kTile * 16];
  for (int t = t0; t < t1;) {
    const int n = T - t >= kTile ? kTile : 1;
    const ActTile a = tile_from<Type>(act, K, t, n, b);
    float* out = y + size_t(t) * ldy;
    size_t ld = ldy;
    if (rows < 16) {
      for (int i = 0; i < n; i++) memcpy(tmp + i * 16, out + size_t(i) * ldy, first ? 0 : size_t(rows) * 4);
      out = tmp, ld = 16;
    }
    if (n == kTile) panel_tile<Type, kTile>(p, blocks, a, out, ld, first);
    else panel_tile<Type, 1>(p, blocks, a, out, ld, first);
    if (rows < 16)
      for (int i = 0; i < n; i++) memcpy(y + size_t(t + i) * ldy, tmp + i * 16, size_t(rows) * 4);
    t += n;
  }
}

}  // namespace
}  // namespace tealight::kernels
