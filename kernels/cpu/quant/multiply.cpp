#include "kernels/cpu/quant/multiply.h"

namespace tealight::kernels {
namespace {


// A panel, whose first block is b, times tokens t0..t1-1.
void panel_tokens(const QuantCode& code, const Matmul& m, const Panel& p, int blocks, int b, int t0, int t1, int r) {
  constexpr int kTokens = 2 * kActTile;
  const Family family = info(code.type).family;
  const size_t row_bytes = size_t(min_int(16, m.r1 - r)) * 4;
  const bool first = b == 0, part = row_bytes < 64;
  float tmp[kTokens * 16];
  for (int t = t0; t < t1;) {
    const int n = code.eight && t1 - t >= kTokens ? kTokens : m.T - t >= kActTile ? kActTile : 1;
    ActTile a[2] = {tile_from(family, m.act, m.K, t, min_int(n, kActTile), b), {}};
    if (n == kTokens) a[1] = tile_from(family, m.act, m.K, t + kActTile, kActTile, b);
    float* out = m.y + size_t(t) * m.ldy + r;
    for (int i = 0; part && !first && i < n; i++) memcpy(tmp + i * 16, out + size_t(i) * m.ldy, row_bytes);
    const QuantCode::Tile tile = n == 1 ? code.one : n == kActTile ? code.four : code.eight;
    tile(p, blocks, a, part ? tmp : out, part ? 16 : m.ldy, first);
    for (int i = 0; part && i < n; i++) memcpy(out + size_t(i) * m.ldy, tmp + i * 16, row_bytes);
    t += n;
  }
}

void panels(const QuantCode& code, bool x16, const Matmul& m) {
  const int B = info(code.type).block, piece = kIntPiece / B, blocks = m.K / B;
  const Panel p = panel_in(m.scratch, B);
  // As many tokens at a time as stay in the second cache, but enough to pay for the panels.
  const int some = m.K > 4096 ? 64 : (256 * 1024 / m.K + 7) & ~7;
  for (int t = 0; t < m.T; t += some)
    for (int r = m.r0; r < m.r1; r += 16)
      for (int b = 0; b < blocks; b += piece) {
        const int n = min_int(piece, blocks - b);
        unpack(code, x16, m, r, b, n, p);
        panel_tokens(code, m, p, n, b, t, min_int(m.T, t + some), r);
      }
}

void one_plain(const QuantCode& code, const Matmul& m) {
  const DtypeInfo& f = info(code.type);
  const size_t stride = row_bytes(code.type, size_t(m.K));
  const ActTile a = act_tile(f.family, m.act, m.K, 0, 1);
  const auto rows = [&](int r, size_t step, int n) {
    float tmp[8];
    code.rows8(static_cast<const uint8_t*>(m.w) + size_t(r) * stride, step, m.K / f.block, a, tmp);
    memcpy(m.y + r, tmp, size_t(n) * 4);
  };
  int r = m.r0;
  for (; r + 8 <= m.r1; r += 8) rows(r, stride, 8);
  if (r < m.r1 && m.r1 - m.r0 >= 8) rows(m.r1 - 8, stride, 8);  // the last 8 again, some computed twice
  else for (; r < m.r1; r++) rows(r, 0, 1);                     // fewer than 8: the same row in every lane
}

void few_x16(const QuantCode& code, const Matmul& m) {
  const DtypeInfo& f = info(code.type);
  const size_t row = x16_row_bytes(code.type, size_t(m.K));
  for (int r = m.r0; r < m.r1; r += 16 * kSideBySide)
    for (int t = 0, n; t < m.T; t += n) {
      n = code.x16_two && m.T - t >= 2 ? 2 : 1;
      ActTile a[2];
      for (int i = 0; i < n; i++) a[i] = act_tile(f.family, m.act, m.K, t + i, 1);
      float *out = m.y + size_t(t) * m.ldy + r, tmp[2 * 16 * kSideBySide];
      const int rows = min_int(m.r1 - r, 16 * kSideBySide), groups = (rows + 15) / 16;
      const bool whole = rows == groups * 16;
      (n == 2 ? code.x16_two : code.x16_one)(static_cast<const uint8_t*>(m.w) + size_t(r) * row, groups, m.K / f.block, a,
                                             whole ? out : tmp, whole ? m.ldy : 16 * kSideBySide);
      for (int i = 0; !whole && i < n; i++) memcpy(out + size_t(i) * m.ldy, tmp + i * 16 * kSideBySide, size_t(rows) * 4);
    }
}

}  // namespace

void unpack(const QuantCode& code, bool x16, const Matmul& m, int r, int b0, int blocks, const Panel& p) {
  if (x16) code.fill->x16(static_cast<const uint8_t*>(m.w) + size_t(r) * x16_row_bytes(code.type, size_t(m.K)), b0, blocks, p);
  else code.fill->plain(m.w, row_bytes(code.type, size_t(m.K)), r, m.r1 - 1, b0, blocks, p);
}

// A panel pays from the second token on; of groups, whose rows lie in lanes already, with a whole tile.
void multiply(const QuantCode& code, bool x16, const Matmul& m) {
  if (m.T >= (x16 ? kActTile : 2)) panels(code, x16, m);
  else if (x16) few_x16(code, m);
  else one_plain(code, m);
}

}  // namespace tealight::kernels
