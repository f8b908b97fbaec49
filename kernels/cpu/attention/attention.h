// Attention of one token's query group over a K/V head, in three passes: scores (lanes are keys, one fma a dimension in
// rising order), softmax (the order of row/row.h, lanes anchored at the first tile), weighted sum of V rows (one fma a key
// in rising order, then times 1 / sum). Include after vec/*.h and vec/math.h.
#pragma once

namespace tealight::kernels {
namespace {

constexpr int kHeadsAtOnce = Vec::kRegisters ? 4 : 1;  // heads that share a load of K or V
constexpr int kKeysAtOnce = 32;  // V rows that stay in the first cache while all their columns are summed

// Scores of H heads for G tiles from `tile` on.
template <int H, int G, class E>
inline void score_tiles(const Attention& a, const E* k, const float* q, int tile, float* scores, size_t stride) {
  const size_t tile_stride = a.tile_bytes / sizeof(E);
  k += size_t(tile) * tile_stride;
  Vec acc[H][G];
  TL_UNROLL for (int h = 0; h < H; h++) TL_UNROLL for (int g = 0; g < G; g++) acc[h][g] = Vec::set(0.0f);
  for (int d = 0; d < a.d; d++) {
    Vec x[G];
    TL_UNROLL for (int g = 0; g < G; g++) {
      const E* p = k + size_t(g) * tile_stride + size_t(d) * 16;
      __builtin_prefetch(p + G * tile_stride);
      x[g] = Vec::load(p);
    }
    TL_UNROLL for (int h = 0; h < H; h++) {
      const Vec b = Vec::set(q[size_t(h) * a.q_stride + size_t(d)]);
      TL_UNROLL for (int g = 0; g < G; g++) acc[h][g] = Vec::fma(x[g], b, acc[h][g]);
    }
  }
  TL_UNROLL for (int h = 0; h < H; h++) TL_UNROLL for (int g = 0; g < G; g++) {
    Vec::mul(acc[h][g], Vec::set(a.scale)).store(scores + size_t(h) * stride + size_t(tile + g) * 16);
  }
}

// The soft cap, then exp(score - max), in place over the whole tiles that hold lo..hi-1, zero outside; returns 1 / sum.
float exp_scores(float* s, int lo, int hi, float cap) {
  const int begin = lo & ~15, end = (hi + 15) & ~15;
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

// out[h][c..] += sum over keys lo..hi-1 for C lanes of columns, `n` of them in the last; then times inv where it is given.
template <int H, int C, class E>
inline void sum_columns(const Attention& a, const E* v, const float* e, size_t stride, int lo, int hi, int c, int n,
                        float* out, bool first, const float* inv) {
  Vec acc[H][C];
  TL_UNROLL for (int h = 0; h < H; h++) TL_UNROLL for (int i = 0; i < C; i++) {
    acc[h][i] = first ? Vec::set(0.0f) : load_n(out + size_t(h) * a.out_stride + c + i * 16, i == C - 1 ? n : 16);
  }
  const size_t tile_stride = a.tile_bytes / sizeof(E), ahead = kKeysAtOnce / 16 * tile_stride;
  for (int j = lo; j < hi;) {
    const E* p = v + size_t(j / 16) * tile_stride + size_t(j % 16) * size_t(a.dv) + c;
    for (const int end = min_int(hi, (j | 15) + 1); j < end; j++, p += a.dv) {
      __builtin_prefetch(p + ahead);
      if (C > 2) __builtin_prefetch(p + ahead + 32);
      Vec x[C];
      TL_UNROLL for (int i = 0; i < C; i++) {
        x[i] = i == C - 1 ? load_n(p + i * 16, n) : Vec::load(p + i * 16);
      }
      TL_UNROLL for (int h = 0; h < H; h++) {
        const Vec w = Vec::set(e[size_t(h) * stride + size_t(j)]);
        TL_UNROLL for (int i = 0; i < C; i++) acc[h][i] = Vec::fma(x[i], w, acc[h][i]);
      }
    }
  }
  TL_UNROLL for (int h = 0; h < H; h++) TL_UNROLL for (int i = 0; i < C; i++) {
    if (inv) acc[h][i] = Vec::mul(acc[h][i], Vec::set(inv[h]));
    store_n(acc[h][i], out + size_t(h) * a.out_stride + c + i * 16, i == C - 1 ? n : 16);
  }
}

template <int H, class E>
void attend(const Attention& a, const float* q, float* out) {
  const E* k = static_cast<const E*>(a.k);
  const E* v = static_cast<const E*>(a.v);
  const size_t stride = size_t((a.hi + 15) & ~15);
  // Enough independent chains to hide the latency of fma, no more than the registers hold.
  constexpr int kTiles = !Vec::kRegisters ? 1 : Vec::kRegisters >= 32 ? (H >= 3 ? 4 : 8 / H) : (H >= 3 ? 1 : H >= 2 ? 2 : 4);
  constexpr int kColumns = !Vec::kRegisters ? 1 : Vec::kRegisters >= 32 ? (H >= 3 ? 4 : 8 / H) : (H >= 3 ? 1 : H == 2 ? 2 : 4);
  const int last = (a.hi + 15) / 16;
  int tile = a.lo / 16;
  for (; tile + kTiles <= last; tile += kTiles) score_tiles<H, kTiles>(a, k, q, tile, a.scratch, stride);
  for (; tile < last; tile++) score_tiles<H, 1>(a, k, q, tile, a.scratch, stride);
  float inv[H];
  for (int h = 0; h < H; h++) inv[h] = exp_scores(a.scratch + size_t(h) * stride, a.lo, a.hi, a.softcap);
  for (int j = a.lo; j < a.hi;) {
    const int end = min_int(a.hi, (j & ~15) + kKeysAtOnce);
    const bool first = j == a.lo;
    const float* done = end == a.hi ? inv : nullptr;
    int c = 0;
    for (; c + kColumns * 16 <= a.dv; c += kColumns * 16)
      sum_columns<H, kColumns>(a, v, a.scratch, stride, j, end, c, 16, out, first, done);
    for (; c < a.dv; c += 16)
      sum_columns<H, 1>(a, v, a.scratch, stride, j, end, c, min_int(16, a.dv - c), out, first, done);
    j = end;
  }
}

template <class E>
void attend_group(const Attention& a) {
  for (int h = 0; h < a.heads;) {
    const float* q = a.q + size_t(h) * a.q_stride;
    float* out = a.out + size_t(h) * a.out_stride;
    const int n = min_int(kHeadsAtOnce, a.heads - h);
    if constexpr (kHeadsAtOnce == 4) {
      if (n == 4) attend<4, E>(a, q, out);
      else if (n == 3) attend<3, E>(a, q, out);
      else if (n == 2) attend<2, E>(a, q, out);
    }
    if (n == 1) attend<1, E>(a, q, out);
    h += n;
  }
}

void attention(const Attention& a) {
  if (a.kv == Dtype::f16) attend_group<uint16_t>(a);
  else attend_group<float>(a);
}

}  // namespace
}  // namespace tealight::kernels
