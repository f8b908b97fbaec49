// CpuBackend::attention: which rows and heads are computed together, and what each thread does. None of this changes a bit.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "src/base/checked.h"
#include "src/base/error.h"
#include "src/tensor/cpu_backend.h"

namespace tealight {
namespace {

constexpr int64_t kFewProducts = 64 * 1024;   // so many are computed by the caller alone
constexpr int kFewItems = 17;           // a block of rows and a K/V head each; fewer are computed pass by pass

// std::round of what fits an int, inline.
int rounded(float v) {
  const int whole = int(v);
  const float rest = v - float(whole);   // exact
  return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

// f16 scale and codes of 32 values, as GGUF's reference makes Q8_0 and Q4_0 blocks: amax / 127, or the value that is largest in
// size / -8; codes are x / scale rounded (q4_0: + 8, 0..15). The scale is used before it is rounded to f16.
uint16_t quantize32(const kernels::Table& kernels, Dtype type, const float* x, uint8_t* codes) {
  float most = 0;
  for (int i = 0; i < 32 && !std::isnan(most); i++)   // NaN and infinity go into the scale
    if (!(std::fabs(x[i]) <= std::fabs(most))) most = x[i];
  const bool bytes = type == Dtype::q8_0;
  const float scale = bytes ? std::fabs(most) / 127 : most / -8, inverse = scale != 0 ? 1 / scale : 0;
  for (int i = 0; i < 32; i++) {
    const float v = x[i] * inverse;   // at most 127, or 8, in size, or NaN
    codes[i] = bytes ? uint8_t(int8_t(std::fabs(v) < 128 ? rounded(v) : 0)) : uint8_t(std::fabs(v) < 9 ? std::min(15, int(v + 8.5f)) : 0);
  }
  uint16_t half;
  kernels.to_f16(&scale, &half, 1);
  return half;
}

// The same for one key and one value of a head; k, v: the head's in the tile.
void store_quantized(const kernels::Table& kernels, const KvLayer& kv, const float* key, const float* value, uint8_t* k, uint8_t* v,
                     size_t lane) {
  const bool bytes = kv.dtype == Dtype::q8_0;
  const size_t row = bytes ? 32 : 16, d = size_t(kv.d) / 32, dv = size_t(kv.dv) / 32;   // bytes of 32 codes; blocks
  uint8_t codes[32];
  const auto pack = [&] {             // two nibbles a byte
    if (!bytes)
      for (int i = 0; i < 16; i++) codes[i] = uint8_t(codes[i] | codes[i + 16] << 4);
  };
  for (size_t b = 0; b < d; b++) {
    const uint16_t scale = quantize32(kernels, kv.dtype, key + b * 32, codes);
    pack();
    for (size_t i = 0; i < row; i++) k[(b * row + i) * 16 + lane] = codes[i];
    std::memcpy(k + d * row * 16 + (b * 16 + lane) * 2, &scale, 2);
  }
  for (size_t b = 0; b < dv; b++) {
    const uint16_t scale = quantize32(kernels, kv.dtype, value + b * 32, codes);
    pack();
    std::memcpy(v + (lane * dv + b) * row, codes, row);
    std::memcpy(v + dv * row * 16 + (lane * dv + b) * 2, &scale, 2);
  }
}

// Writes one key and one value of every K/V head at a position of the cache.
void store_kv(const kernels::Table& kernels, const KvLayer& kv, const float* k, int64_t k_stride, const float* v, int64_t v_stride,
              int position) {
  const size_t lane = size_t(position) % 16;
  char* tile = static_cast<char*>(kv.tiles[position / 16]);
  TEALIGHT_CHECK(tile != nullptr);
  char *to_k = tile + kv.k, *to_v = tile + kv.v;
  for (int h = 0; h < kv.kv_heads; h++, k += k_stride, v += v_stride) {
    if (kv.dtype == Dtype::f32) {
      float* to = reinterpret_cast<float*>(to_k) + lane;
      for (int i = 0; i < kv.d; i++) to[i * 16] = k[i];
      std::memcpy(reinterpret_cast<float*>(to_v) + lane * size_t(kv.dv), v, size_t(kv.dv) * sizeof(float));
    } else if (kv.dtype == Dtype::f16) {
      uint16_t* to = reinterpret_cast<uint16_t*>(to_k) + lane;
      uint16_t half[16];
      for (int i = 0; i < kv.d; i += 16) {
        const int m = std::min(16, kv.d - i);
        kernels.to_f16(k + i, half, size_t(m));
        for (int j = 0; j < m; j++) to[(i + j) * 16] = half[j];
      }
      kernels.to_f16(v, reinterpret_cast<uint16_t*>(to_v) + lane * size_t(kv.dv), size_t(kv.dv));
    } else {
      store_quantized(kernels, kv, k, v, reinterpret_cast<uint8_t*>(to_k), reinterpret_cast<uint8_t*>(to_v), lane);
    }
    to_k += 16 * row_bytes(kv.dtype, size_t(kv.d));
    to_v += 16 * row_bytes(kv.dtype, size_t(kv.dv));
  }
}

// Rows of one sequence whose heads are computed together: enough queries to make use of a widened tile, and scores that stay in
// the second cache.
int rows_at_once(int group, int keys) {
  constexpr int kQueries = 48, kLeast = 12, kScores = 96 * 1024;
  return std::max(1, std::clamp(kScores / std::max(keys, 1), kLeast, kQueries) / group);
}

// Calls f(item, begin, end) for the thread's share of all units, where size(item) are each item's.
template <class Size, class F>
void share(int thread, int threads, int items, const Size& size, const F& f) {
  int64_t total = 0, at = 0;
  for (int i = 0; i < items; i++) total += size(i);
  const int64_t begin = total * thread / threads, end = total * (thread + 1) / threads;
  for (int i = 0; i < items; i++) {
    const int64_t n = size(i), from = std::max(begin - at, int64_t(0)), to = std::min(end - at, n);
    if (from < to) f(i, int(from), int(to));
    at += n;
  }
}

// Are so many items computed pass by pass, together? Then a thread's part of the scratch holds its share of their scores.
bool by_passes(int items, int threads) { return items < std::max(4 * threads, kFewItems); }
size_t attention_scratch(int items, int threads, size_t score_bytes, size_t work_bytes) {
  return align_up(by_passes(items, threads) ? score_bytes * size_t(items) / size_t(threads) + score_bytes : score_bytes, 64) + work_bytes;
}

}  // namespace

// However the rows are cut into blocks, which depends on the positions.
void CpuBackend::reserve_attention(const AttentionSpec& s, std::span<const AttentionRow> rows) {
  const int n = int(rows.size()), group = s.heads / s.kv_heads;
  seen_.reserve(rows.size());
  blocks_.reserve(rows.size() + 1);
  for (int at_once = 1; at_once <= n; at_once++) {
    const size_t scores = align_up(kernels::attention_score_bytes(at_once * group, rows[0].kv->capacity / 16), 64);
    scratch(attention_scratch((n + at_once - 1) / at_once * s.kv_heads, pool_.threads(), scores,
                              align_up(kernels::attention_work_bytes(at_once * group, s.d, s.dv), 64)));
  }
}

void CpuBackend::attention(const AttentionSpec& s, const Tensor& q, const Tensor& k, const Tensor& v,
                           std::span<const AttentionRow> rows, const Tensor& out) {
  using kernels::Attention;
  if (rehearsing_) return reserve_attention(s, rows);
  const int n = int(rows.size()), group = s.heads / s.kv_heads, threads = pool_.threads();
  seen_.clear();
  blocks_.clear();
  int64_t work = 0;
  int longest = 0;
  for (int t = 0; t < n; t++) {
    const AttentionRow& r = rows[size_t(t)];
    TEALIGHT_CHECK(r.position < r.kv->capacity);
    seen_.push_back({r.first, r.position + 1});
    longest = std::max(longest, r.position + 1 - r.first);
    work += int64_t(r.position + 1 - r.first) * s.heads * (s.d + s.dv);
  }
  split(n, int64_t(n) * s.kv_heads * (s.d + s.dv), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++)
      store_kv(kernels_, *rows[size_t(t)].kv, k.data() + t * k.stride(0), k.stride(1), v.data() + t * v.stride(0), v.stride(1), rows[size_t(t)].position);
  });
  // Blocks of rows; the most queries and tiles of any.
  const int at_once = rows_at_once(group, longest);
  int queries = 0, tiles = 0;
  for (int t = 0; t < n; t++) {
    const AttentionRow &r = rows[size_t(t)], &before = rows[size_t(std::max(t - 1, 0))];
    const bool joins = t && t - blocks_.back() < at_once && r.kv == before.kv && r.position >= before.position && r.first >= before.first;
    if (!joins) blocks_.push_back(t);
    queries = std::max(queries, (t + 1 - blocks_.back()) * group);
    tiles = std::max(tiles, (r.position + 16) / 16 - rows[size_t(blocks_.back())].first / 16);
  }
  const int blocks = int(blocks_.size()), items = blocks * s.kv_heads;
  blocks_.push_back(n);
  // A few rows are a step of decoding: what it needs is reserved for the whole sequence, so that later steps take no memory.
  constexpr int kFewRows = 16;
  for (int t = 0; t < n && n <= kFewRows; t++) tiles = std::max(tiles, rows[size_t(t)].kv->capacity / 16);
  const size_t score_bytes = align_up(kernels::attention_score_bytes(queries, tiles), 64);
  const size_t work_bytes = align_up(kernels::attention_work_bytes(queries, s.d, s.dv), 64);

  // Item i: a block and a K/V head; blocks within heads, the long ones first.
  const auto item = [&](int i, std::byte* scores, std::byte* mine) {
    const int h = i / blocks, b = blocks - 1 - i % blocks, first = blocks_[size_t(b)], head = h * group;
    const KvLayer& kv = *rows[size_t(first)].kv;
    Attention a;
    a.q = q.data() + first * q.stride(0) + head * q.stride(1);
    a.q_row = size_t(q.stride(0));
    a.q_stride = size_t(q.stride(1));
    a.tiles = kv.tiles;
    a.k = kv.k + size_t(h) * 16 * row_bytes(kv.dtype, size_t(kv.d));
    a.v = kv.v + size_t(h) * 16 * row_bytes(kv.dtype, size_t(kv.dv));
    a.kv = kv.dtype;
    a.rows = blocks_[size_t(b) + 1] - first;
    a.heads = group;
    a.d = s.d;
    a.dv = s.dv;
    a.seen = seen_.data() + first;
    a.scale = s.scale;
    a.softcap = s.softcap;
    a.out = out.data() + (int64_t(first) * s.heads + head) * s.dv;
    a.out_row = size_t(s.heads) * size_t(s.dv);
    a.out_stride = size_t(s.dv);
    a.scores = reinterpret_cast<float*>(scores);
    a.work = reinterpret_cast<float*>(mine);
    return a;
  };
  const auto first_tile = [](const Attention& a) { return a.seen[0].lo / 16; };
  const auto n_tiles = [](const Attention& a) { return (a.seen[a.rows - 1].hi + 15) / 16 - a.seen[0].lo / 16; };
  const auto whole = [&](int i, std::byte* mine) {
    const Attention a = item(i, mine, mine + score_bytes);
    kernels_.attention_scores(a, first_tile(a), first_tile(a) + n_tiles(a));
    kernels_.attention_weights(a, 0, a.rows * a.heads);
    kernels_.attention_sum(a, 0, a.dv);
  };

  if (work <= kFewProducts) {
    std::byte* mine = scratch(score_bytes + work_bytes);
    for (int i = 0; i < items; i++) whole(i, mine);
    return;
  }
  if (!by_passes(items, threads)) {   // whole items, whoever is free
    std::byte* all = scratch(score_bytes + work_bytes);
    std::atomic<int> next{0};
    pool_.run([&](int thread) {
      for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < items;) whole(i, all + size_t(thread) * (score_bytes + work_bytes));
    });
    return;
  }
  // Few items: each pass over all of them is cut evenly, so that each byte of K and V is read by one thread; K of neighbouring heads
  // is read one after the other (1.1 times as fast as K and V of each head in turn).
  std::byte* all = scratch(attention_scratch(items, threads, score_bytes, work_bytes));
  const auto at = [&](int i, int thread) { return item(i, all + size_t(i) * score_bytes, all + size_t(items) * score_bytes + size_t(thread) * work_bytes); };
  const int unit = items * ((s.dv + 31) / 32) < threads ? 16 : 32;   // columns
  const auto scores = [&](int thread) {
    share(thread, threads, items, [&](int i) { return n_tiles(at(i, 0)); }, [&](int i, int begin, int end) {
      const Attention a = at(i, thread);
      kernels_.attention_scores(a, first_tile(a) + begin, first_tile(a) + end);
    });
  };
  const auto weights = [&](int thread) {
    share(thread, threads, items, [&](int i) { return at(i, 0).rows * group; }, [&](int i, int begin, int end) { kernels_.attention_weights(at(i, thread), begin, end); });
  };
  const auto sums = [&](int thread) {
    share(thread, threads, items, [&](int) { return (s.dv + unit - 1) / unit; }, [&](int i, int begin, int end) {
      kernels_.attention_sum(at(i, thread), begin * unit, std::min(end * unit, s.dv));
    });
  };
  pool_.run_phases(3, [&](int phase, int thread) { phase == 0 ? scores(thread) : phase == 1 ? weights(thread) : sums(thread); });
}

}  // namespace tealight
