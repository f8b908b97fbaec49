#include "bench/attention.h"

#include <vector>

namespace tealight::bench {
namespace {

using kernels::Attention, kernels::Table;

// `rows` neighbouring rows at a depth, `heads` query heads to one K/V head of size d.
struct Shape {
  int d, heads, rows, depth;
  Dtype kv = Dtype::f16;
  int hi() const { return depth + rows; }
  size_t part() const { return 16 * row_bytes(kv, size_t(d)); }                  // bytes of a tile's keys, or its values
  size_t bytes() const { return size_t(hi() + 15) / 16 * 2 * part(); }
  double operations() const {
    double keys = 0;
    for (int r = 0; r < rows; r++) keys += depth + r + 1;
    return 4.0 * d * heads * keys;
  }
};

// Seconds of a call over keys and values from kv on, the next `calls` of them one after the other.
double seconds(const Table& t, const Shape& s, const uint8_t* kv, size_t calls, bool same, double total) {
  const int queries = s.rows * s.heads, tiles = (s.hi() + 15) / 16;
  float *q = aligned<float>(size_t(queries * s.d)), *out = aligned<float>(size_t(queries * s.d));
  float* scores = aligned<float>(kernels::attention_score_bytes(queries, tiles) / 4);
  float* work = aligned<float>(kernels::attention_work_bytes(queries, s.d, s.d) / 4);
  std::vector<Attention::Row> seen;
  std::vector<const void*> at(static_cast<size_t>(tiles));
  for (int r = 0; r < s.rows; r++) seen.push_back({0, s.depth + r + 1});
  fill(q, size_t(queries * s.d));
  const size_t part = s.part(), stride = size_t(s.heads * s.d);
  const double spent = best([&] {
    for (size_t i = 0; i < calls; i++) {
      const uint8_t* k = kv + (same ? 0 : i * s.bytes());
      for (int j = 0; j < tiles; j++) at[size_t(j)] = k + size_t(j) * 2 * part;
      const Attention a{q, stride, size_t(s.d), at.data(), 0, part, s.kv, s.rows, s.heads, s.d, s.d, seen.data(), 0.1f, 0, out, stride, size_t(s.d), scores, work};
      t.attention_scores(a, 0, tiles);
      t.attention_weights(a, 0, queries);
      t.attention_sum(a, 0, s.d);
    }
  }, total);
  std::free(q), std::free(out), std::free(scores), std::free(work);
  return spent / double(calls);
}

std::string name(const Shape& s) {
  return "d " + std::to_string(s.d) + " heads " + std::to_string(s.heads) + " rows " + std::to_string(s.rows) + " at " + std::to_string(s.depth);
}

}  // namespace

void attention(const Table& t, const Memory& memory, const Peaks& peak, const Report& report) {
  for (int d : {64, 128, 256})
    for (int heads : {1, 3, 4, 8}) {
      for (Dtype kv : {Dtype::f16, Dtype::q8_0, Dtype::q4_0})
        for (int p : {0, 1}) {
          const Shape one{d, heads, 1, 2047, kv};
          report.row("attention", t.isa, info(kv).name, name(one) + " " + kPages[p],
                     double(one.bytes()) / seconds(t, one, memory.pages[p], kMemory / one.bytes(), false, 0.2) * 1e-9, "GB/s", peak.read[p]);
        }
      for (int depth : {0, 480, 4000}) {
        const Shape many{d, heads, 24 / heads * 2, depth};
        report.row("attention", t.isa, "F16", name(many), many.operations() / seconds(t, many, memory.pages[1], 8, true, 0.03) * 1e-9, "Gop/s", peak.fma);
      }
    }
}

}  // namespace tealight::bench
