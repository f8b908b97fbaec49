// Attention of some rows' query heads over one K/V head, in three passes: scores (lanes are keys, one fma a dimension in
// rising order, then times scale), weights (soft cap and softmax in the order of row/row.h, lanes anchored at the first tile),
// weighted sum of V rows (one fma a key in rising order, then times 1 / sum). A query's result is the same whatever rows
// and heads are computed with it: keys that it does not see get no weight in its softmax and no fma in its sum.
// Include after vec/*.h and vec/math.h.
#pragma once
#include "kernels/cpu/attention/sizes.h"

namespace tealight::kernels {
namespace {

constexpr int kQueries = !Vec::kRegisters ? 1 : Vec::kRegisters >= 32 ? 8 : 6;  // that share a load of K or V
// Vectors of keys or columns for each of N queries: enough independent chains to hide the latency of fma, no more than the
// registers hold.
template <int N>
constexpr int kWide = !Vec::kRegisters ? 1 : Vec::kRegisters >= 32 ? (N > 4 ? 2 : 4) : N == 1 ? 4 : N == 2 ? 2 : 1;

// f(Count<n>) for n = 1..N.
template <int N, class F>
inline void with_count(int n, const F& f) {
  if constexpr (N > 1) {
    if (n < N) return with_count<N - 1>(n, f);
  }
  f(Count<N>{});
}

// A run of queries that is computed together. Blocks have nearly equal sizes.
struct Block {
  int begin, end;
};
inline int block_count(int queries) { return (queries + kQueries - 1) / kQueries; }
inline Block block(int queries, int i) {
  const int n = block_count(queries);
  return {queries * i / n, queries * (i + 1) / n};
}

// Tiles first .. end - 1, and what a pass reads of them: in each the bytes from `offset` on, prefetched `ahead` tiles before.
struct Tiles {
  const void* const* p;
  size_t offset;
  int first, end, ahead;
  const char* at(int t) const { return static_cast<const char*>(p[t - first]) + offset; }
  const char* next(int t) const { return at(min_int(t + ahead, end - 1)); }
};
// The same of tiles that were widened into scratch.
struct Widened {
  const void* p[kPieceFloats / 16];
  Tiles tiles;
  Widened(const float* scratch, size_t floats, int first, int end) : tiles{p, 0, first, end, 0} {
    for (int i = 0; i < end - first; i++) p[i] = scratch + size_t(i) * floats;
  }
};

constexpr size_t kAhead = 8192;   // bytes of K that are prefetched before they are needed, by all streams together

// Scores of N queries for tiles t to t + G - 1. q: [d][N].
template <int N, int G, class E>
inline void score_tiles(const Tiles& k, int t, int d, const float* q, float scale, float* s, size_t stride) {
  const char *p[G], *soon[G];
  Vec acc[N][G];
  TL_UNROLL for (int h = 0; h < N; h++) TL_UNROLL for (int g = 0; g < G; g++) acc[h][g] = Vec::set(0.0f);
  // While the first `near` bytes of large tiles are read, their own ends are prefetched; then the begins of tiles to come.
  const size_t size = size_t(d) * 16 * sizeof(E), near = size * G > kAhead ? size - kAhead / G : 0;
  const int later = near ? G : int(kAhead / size);
  TL_UNROLL for (int g = 0; g < G; g++) p[g] = k.at(t + g), soon[g] = p[g] + (size - near);
  for (size_t i = 0, end = near;; end = size) {
    for (; i < end; i += 16 * sizeof(E), q += N) {
      Vec x[G];
      TL_UNROLL for (int g = 0; g < G; g++) {
        __builtin_prefetch(soon[g] + i);
        x[g] = Vec::load(reinterpret_cast<const E*>(p[g] + i));
      }
      TL_UNROLL for (int h = 0; h < N; h++) {
        const Vec b = Vec::set(q[h]);
        TL_UNROLL for (int g = 0; g < G; g++) acc[h][g] = Vec::fma(x[g], b, acc[h][g]);
      }
    }
    if (end == size) break;
    TL_UNROLL for (int g = 0; g < G; g++) soon[g] = k.at(min_int(t + g + later, k.end - 1)) - near;
  }
  TL_UNROLL for (int h = 0; h < N; h++) TL_UNROLL for (int g = 0; g < G; g++) {
    Vec::mul(acc[h][g], Vec::set(scale)).store(s + size_t(h) * stride + size_t(g) * 16);
  }
}

// Tiles [begin, end) for every block that sees them.
template <class E>
void score_piece(const Attention& a, const Tiles& k, int begin, int end) {
  const int queries = a.rows * a.heads;
  const size_t stride = score_stride(a);
  for (int i = 0; i < block_count(queries); i++) {
    const Block b = block(queries, i);
    const int from = max_int(begin, a.seen[b.begin / a.heads].lo / 16), to = min_int(end, up16(a.seen[(b.end - 1) / a.heads].hi) / 16);
    const float* q = a.work + size_t(b.begin) * size_t(a.d);
    float* s = a.scores + size_t(b.begin) * stride;
    with_count<kQueries>(b.end - b.begin, [&](auto n) {
      constexpr int N = decltype(n)::value, G = kWide<N>;
      int t = from;
      const auto run = [&](auto g) {
        for (; t + decltype(g)::value <= to; t += decltype(g)::value)
          score_tiles<N, decltype(g)::value, E>(k, t, a.d, q, a.scale, s + size_t(t - first_tile(a)) * 16, stride);
      };
      run(Count<G>{});
      if constexpr (G > 2) run(Count<2>{});
      if constexpr (G > 1) run(Count<1>{});
    });
  }
}

// Whether tiles are widened into scratch first: where they must be, or where several blocks use them.
inline bool widened(const Attention& a) { return is_quantized(a.kv) || (a.kv == Dtype::f16 && a.rows * a.heads > 2 * kQueries); }

// Two vectors of a quantized block's 32 codes: 16 bytes at p and 16 at `second`, or the low and the high nibbles of those at p, minus 8.
template <Dtype kKv>
inline void codes(const int8_t* p, const int8_t* second, Vec& low, Vec& high) {
  int8_t q[32];
  if (kKv == Dtype::q4_0) {
    for (int i = 0; i < 16; i++) q[i] = int8_t((p[i] & 15) - 8), q[16 + i] = int8_t((uint8_t(p[i]) >> 4) - 8);
    p = q, second = q + 16;
  }
  low = Vec::load(p), high = Vec::load(second);
}

// K of one tile as [d][16] floats.
void widen_k(const Attention& a, const Tiles& k, int tile, float* to) {
  const auto* p = reinterpret_cast<const uint16_t*>(k.at(tile));
  const ptrdiff_t ahead = k.next(tile) - k.at(tile);
  for (int i = 0; i < a.d; i++, p += 16, to += 16) {
    __builtin_prefetch(reinterpret_cast<const char*>(p) + ahead);
    Vec::load(p).store(to);
  }
}
// The same of a quantized cache: code times scale, rounded once.
template <Dtype kKv>
void widen_codes_k(const Attention& a, const Tiles& k, int tile, float* to) {
  constexpr int kBlock = kKv == Dtype::q4_0 ? 256 : 512;   // bytes of 32 dimensions
  const auto* p = reinterpret_cast<const int8_t*>(k.at(tile));
  const ptrdiff_t ahead = k.next(tile) - k.at(tile);
  const auto* scales = reinterpret_cast<const uint16_t*>(p + a.d / 32 * kBlock);
  for (int b = 0; b < a.d; b += 32, scales += 16, p += kBlock, to += 512) {
    const Vec scale = Vec::load(scales);
    __builtin_prefetch(reinterpret_cast<const char*>(scales) + ahead);
    for (int i = 0; i < 16; i++) {
      Vec x, y;
      codes<kKv>(p + i * 16, p + 256 + i * 16, x, y);
      if (i % 2 == 0) __builtin_prefetch(p + i * (kBlock / 16) + ahead);
      Vec::mul(x, scale).store(to + i * 16);
      Vec::mul(y, scale).store(to + 256 + i * 16);
    }
  }
}

// Columns [begin, end) of V of one tile: 16 of them to each panel of floats.
template <class E>
void widen_v(const Attention& a, const Tiles& v, int tile, int begin, int end, float* to) {
  const E* p = reinterpret_cast<const E*>(v.at(tile));
  const ptrdiff_t ahead = v.next(tile) - v.at(tile);
  for (int j = 0; j < 16; j++, p += a.dv, to += 16) {
    float* out = to;
    for (int c = begin; c < end; c += 16, out += kPanelFloats) {
      __builtin_prefetch(reinterpret_cast<const char*>(p + c) + ahead);
      load_n(p + c, min_int(16, end - c)).store(out);
    }
  }
}
// The same of a quantized cache.
template <Dtype kKv>
void widen_codes_v(const Attention& a, const Tiles& v, int tile, int begin, int end, float* to) {
  constexpr int kBlock = kKv == Dtype::q4_0 ? 16 : 32;   // bytes of 32 columns
  const auto* p = reinterpret_cast<const int8_t*>(v.at(tile));
  const ptrdiff_t ahead = v.next(tile) - v.at(tile);
  const int blocks = a.dv / 32;                          // of a key; those of all 16 keys lie together, and so do their scales
  const auto* scales = reinterpret_cast<const uint16_t*>(p + 16 * blocks * kBlock);
  float scale[16];
  for (int i = 0, c = 0; i < 16 * blocks; i++, p += kBlock) {
    if (i % 16 == 0) Vec::load(scales + i).store(scale);
    if (c < end && c + 32 > begin) {
      Vec x, y;
      codes<kKv>(p, p + 16, x, y);
      __builtin_prefetch(p + ahead);
      const Vec by = Vec::set(scale[i % 16]);
      float* out = to + (c - begin) / 16 * ptrdiff_t(kPanelFloats);
      if (c >= begin) Vec::mul(x, by).store(out);
      if (c + 16 < end) Vec::mul(y, by).store(out + kPanelFloats);
    }
    if ((c += 32) == a.dv) c = 0, to += 16;
  }
}

// Tiles [begin, end) as they lie in memory.
template <class E>
void score_direct(const Attention& a, const Tiles& k, int begin, int end) {
  const int n = a.rows * a.heads <= kQueries ? end - begin : k.ahead;
  for (int t = begin; t < end; t += n) score_piece<E>(a, k, t, min_int(end, t + n));
}

void attention_scores(const Attention& a, int begin, int end) {
  const int queries = a.rows * a.heads, piece = tiles_at_once(a.d);
  // Queries of a block side by side, [d][n].
  for (int i = 0; i < block_count(queries); i++) {
    const Block b = block(queries, i);
    for (int j = b.begin; j < b.end; j++) {
      const float* from = a.q + size_t(j / a.heads) * a.q_row + size_t(j % a.heads) * a.q_stride;
      float* to = a.work + size_t(b.begin) * size_t(a.d) + (j - b.begin);
      for (int c = 0; c < a.d; c++) to[size_t(c) * size_t(b.end - b.begin)] = from[c];
    }
  }
  const Tiles k{a.tiles, a.k, 0, end_tile(a), piece};
  if (!widened(a)) return a.kv == Dtype::f16 ? score_direct<uint16_t>(a, k, begin, end) : score_direct<float>(a, k, begin, end);
  float* wide = a.work + size_t(queries) * size_t(a.d);
  const size_t tile_floats = size_t(a.d) * 16;
  const auto widen = a.kv == Dtype::f16 ? widen_k : a.kv == Dtype::q8_0 ? widen_codes_k<Dtype::q8_0> : widen_codes_k<Dtype::q4_0>;
  for (int t = begin; t < end; t += piece) {
    const int stop = min_int(end, t + piece);
    for (int i = t; i < stop; i++) widen(a, k, i, wide + size_t(i - t) * tile_floats);
    score_piece<float>(a, Widened(wide, tile_floats, t, stop).tiles, t, stop);
  }
}

// The soft cap, then exp(score - max), in place over the whole tiles that hold lo..hi-1, zero outside; returns 1 / sum.
float exp_scores(float* s, int lo, int hi, float cap) {
  const int begin = lo & ~15, end = up16(hi);
  if (cap > 0.0f)
    for (int j = begin; j < end; j += 16) softcap1(Vec::load(s + j), Vec::set(cap)).store(s + j);
  for (int j = begin; j < lo; j++) s[j] = -__builtin_inff();
  for (int j = hi; j < end; j++) s[j] = -__builtin_inff();
  Vec most = Vec::load(s + begin);
  for (int j = begin + 16; j < end; j += 16) most = Vec::max(most, Vec::load(s + j));
  const Vec top = Vec::set(tree_max(most));
  Vec sum = Vec::set(0.0f);
  for (int j = begin; j < end; j += 16) {
    const Vec e = exp_neg(Vec::sub(Vec::load(s + j), top));
    e.store(s + j);
    sum = Vec::add(sum, e);
  }
  return 1.0f / tree_add(sum);
}

// Where V lies: element (key j, column c) of tile j / 16 at j % 16 * row + c / 16 * panel + c % 16.
template <class E>
struct Values {
  Tiles tiles;
  size_t row, panel;
  size_t column = 0;    // elements from a tile's begin to the first column
};

// sums[h] (C panels of 16 columns) += weight * V over keys [begin, end); w: the weight of key 0.
template <int N, int C, class E>
inline void sum_columns(const Values<E>& v, int begin, int end, const float* w, size_t stride, float* sums, size_t width) {
  Vec acc[N][C];
  TL_UNROLL for (int h = 0; h < N; h++) TL_UNROLL for (int i = 0; i < C; i++) acc[h][i] = Vec::load(sums + size_t(h) * width + i * 16);
  for (int j = begin; j < end;) {
    const char* tile = v.tiles.at(j / 16);
    const E* p = reinterpret_cast<const E*>(tile) + v.column + size_t(j % 16) * v.row;
    const ptrdiff_t ahead = v.tiles.next(j / 16) - tile;
    for (const int stop = min_int(end, (j | 15) + 1); j < stop; j++, p += v.row) {
      Vec x[C];
      TL_UNROLL for (int i = 0; i < C; i++) {
        if (i * sizeof(E) % 4 == 0) __builtin_prefetch(reinterpret_cast<const char*>(p + size_t(i) * v.panel) + ahead);
        x[i] = Vec::load(p + size_t(i) * v.panel);
      }
      TL_UNROLL for (int h = 0; h < N; h++) {
        const Vec b = Vec::set(w[ptrdiff_t(h * stride) + j]);
        TL_UNROLL for (int i = 0; i < C; i++) acc[h][i] = Vec::fma(x[i], b, acc[h][i]);
      }
    }
  }
  TL_UNROLL for (int h = 0; h < N; h++) TL_UNROLL for (int i = 0; i < C; i++) acc[h][i].store(sums + size_t(h) * width + i * 16);
}

// Keys [begin, end) for all queries; `sums`: [queries][width]. A block takes the keys that all its rows see together, and
// those that only some see row by row, before and after.
template <class E>
void sum_piece(const Attention& a, Values<E> v, int begin, int end, float* sums, int width) {
  const int queries = a.rows * a.heads;
  const size_t stride = score_stride(a);
  constexpr int kPanels = 4;   // whose V stays in the first cache for all blocks
  for (int c = 0; c < width; c += 16 * kPanels, v.column += kPanels * v.panel) {
    const int panels = min_int(kPanels, (width - c) / 16);
    const auto run = [&](int q0, int q1, int j0, int j1) {
      j0 = max_int(j0, begin), j1 = min_int(j1, end);
      if (j0 >= j1) return;
      const float* w = a.scores + ptrdiff_t(size_t(q0) * stride) - first_tile(a) * 16;
      float* to = sums + size_t(q0) * size_t(width) + c;
      with_count<kQueries>(q1 - q0, [&](auto n) {
        constexpr int N = decltype(n)::value, C = kWide<N>;
        Values<E> at = v;
        int i = 0;
        for (; i + C <= panels; i += C, at.column += C * v.panel) sum_columns<N, C>(at, j0, j1, w, stride, to + i * 16, size_t(width));
        if constexpr (C > 1)
          for (; i < panels; i++, at.column += v.panel) sum_columns<N, 1>(at, j0, j1, w, stride, to + i * 16, size_t(width));
      });
    };
    for (int i = 0; i < block_count(queries); i++) {
      const Block b = block(queries, i);
      const int first = b.begin / a.heads, last = (b.end - 1) / a.heads;
      const int hi = a.seen[first].hi, lo = min_int(a.seen[last].lo, hi);
      const auto some = [&](int r, int j0, int j1) {   // of one row's queries in this block
        run(max_int(b.begin, r * a.heads), min_int(b.end, (r + 1) * a.heads), j0, j1);
      };
      for (int r = first; r < last; r++) some(r, a.seen[r].lo, lo);
      run(b.begin, b.end, lo, hi);
      for (int r = first + 1; r <= last; r++) some(r, max_int(hi, a.seen[r].lo), a.seen[r].hi);
    }
  }
}

void attention_weights(const Attention& a, int begin, int end) {
  const size_t stride = score_stride(a);
  const int base = first_tile(a) * 16;
  float* inv = a.scores + size_t(a.rows * a.heads) * stride;
  for (int i = begin; i < end; i++) {
    const Attention::Row& r = a.seen[i / a.heads];
    inv[i] = exp_scores(a.scores + size_t(i) * stride, r.lo - base, r.hi - base, a.softcap);
  }
}

// Columns [begin, end) of the result.
void attention_sum(const Attention& a, int begin, int end) {
  const int queries = a.rows * a.heads, width = up16(end - begin), hi = a.seen[a.rows - 1].hi;
  float *sums = a.work, *wide = sums + size_t(queries) * size_t(width);
  memset(sums, 0, size_t(queries) * size_t(width) * sizeof(float));
  const bool direct = !widened(a) && (end - begin) % 16 == 0;
  // In place, two pieces at a time stay in the first cache: rows of 512 bytes and more put their lines into few of its sets.
  constexpr int kPieceBytes = 8192;
  const int fit = kPieceBytes / (a.dv * (a.kv == Dtype::f16 ? 2 : 4)) & ~15, keys = direct ? max_int(16, min_int(fit, kPieceKeys)) : kPieceKeys;
  const Tiles v{a.tiles, a.v, 0, end_tile(a), keys / 16};
  for (int j = a.seen[0].lo, stop; j < hi; j = stop) {
    stop = min_int(hi, (j & ~15) + keys);
    if (direct && a.kv == Dtype::f16) {
      sum_piece(a, Values<uint16_t>{v, size_t(a.dv), 16, size_t(begin)}, j, stop, sums, width);
    } else if (direct) {
      sum_piece(a, Values<float>{v, size_t(a.dv), 16, size_t(begin)}, j, stop, sums, width);
    } else {
      const auto widen = a.kv == Dtype::f16 ? widen_v<uint16_t> : a.kv == Dtype::f32 ? widen_v<float>
                         : a.kv == Dtype::q8_0 ? widen_codes_v<Dtype::q8_0> : widen_codes_v<Dtype::q4_0>;
      for (int t = j / 16; t < up16(stop) / 16; t++) widen(a, v, t, begin, end, wide + size_t(t - j / 16) * 256);
      sum_piece(a, Values<float>{Widened(wide, 256, j / 16, up16(stop) / 16).tiles, 16, kPanelFloats}, j, stop, sums, width);
    }
  }
  const float* inv = a.scores + size_t(queries) * score_stride(a);
  for (int i = 0; i < queries; i++) {
    float* out = a.out + size_t(i / a.heads) * a.out_row + size_t(i % a.heads) * a.out_stride + begin;
    for (int c = 0; c < end - begin; c += 16)
      store_n(Vec::mul(Vec::load(sums + size_t(i) * size_t(width) + c), Vec::set(inv[i])), out + c, min_int(16, end - begin - c));
  }
}

void fill_attention(Table& t) {
  t.attention_scores = attention_scores;
  t.attention_weights = attention_weights;
  t.attention_sum = attention_sum;
}

}  // namespace
}  // namespace tealight::kernels
