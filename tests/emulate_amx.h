// AMX tiles as plain arrays, with all that the processor refuses: shapes that do not fit, reserved bits, tiles that are not
// configured, and a configuration that is not given back before the next.
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

namespace emulate {

struct Tile {
  int rows = 0, row_bytes = 0;
  uint8_t data[16][64];
};
inline Tile tiles[8];
inline bool configured = false;

inline void need(bool good) {
  if (!good) abort();
}
inline Tile& tile(int i) {
  need(configured && tiles[i].rows > 0 && tiles[i].row_bytes > 0);
  return tiles[i];
}
inline void tile_loadconfig(const void* p) {
  uint8_t c[64];
  memcpy(c, p, 64);
  need(!configured && c[0] == 1 && c[1] == 0);
  for (int i = 2; i < 16; i++) need(c[i] == 0);
  for (int i = 0; i < 16; i++) {
    uint16_t row_bytes;
    memcpy(&row_bytes, c + 16 + 2 * i, 2);
    need(row_bytes <= 64 && row_bytes % 4 == 0 && c[48 + i] <= 16 && (i < 8 || (row_bytes == 0 && c[48 + i] == 0)));
    if (i >= 8) continue;
    tiles[i].rows = c[48 + i];
    tiles[i].row_bytes = row_bytes;
    memset(tiles[i].data, 0, sizeof tiles[i].data);
  }
  configured = true;
}
inline void tile_release() {
  need(configured);
  configured = false;
}
inline void tile_zero(int i) { memset(tile(i).data, 0, sizeof tiles[i].data); }
inline void tile_loadd(int i, const void* p, long stride) {
  Tile& t = tile(i);
  memset(t.data, 0, sizeof t.data);
  for (int r = 0; r < t.rows; r++) memcpy(t.data[r], static_cast<const char*>(p) + r * stride, size_t(t.row_bytes));
}
inline void tile_stored(int i, void* p, long stride) {
  const Tile& t = tile(i);
  for (int r = 0; r < t.rows; r++) memcpy(static_cast<char*>(p) + r * stride, t.data[r], size_t(t.row_bytes));
}
inline void tile_dpbssd(int to, int first, int second) {
  Tile &c = tile(to), &a = tile(first), &b = tile(second);
  need(to != first && to != second && first != second && a.rows == c.rows && b.rows * 4 == a.row_bytes && b.row_bytes == c.row_bytes);
  for (int m = 0; m < c.rows; m++)
    for (int n = 0; n < c.row_bytes / 4; n++) {
      int32_t sum;
      memcpy(&sum, c.data[m] + n * 4, 4);
      for (int k = 0; k < a.row_bytes; k++) sum += int8_t(a.data[m][k]) * int8_t(b.data[k / 4][n * 4 + k % 4]);
      memcpy(c.data[m] + n * 4, &sum, 4);
    }
}

}  // namespace emulate

#undef _tile_loadconfig
#define _tile_loadconfig emulate::tile_loadconfig
#undef _tile_release
#define _tile_release emulate::tile_release
#undef _tile_zero
#define _tile_zero emulate::tile_zero
#undef _tile_loadd
#define _tile_loadd emulate::tile_loadd
#undef _tile_stored
#define _tile_stored emulate::tile_stored
#undef _tile_dpbssd
#define _tile_dpbssd emulate::tile_dpbssd
