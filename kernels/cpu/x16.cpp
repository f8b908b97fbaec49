// Between plain rows and the x16 layout (x16.h), word by word in either direction.
#include "kernels/cpu/x16.h"

#include <string.h>

namespace tealight::kernels {
namespace {

// Where the parts of a block lie in a plain row: 16-bit fields, and ranges of 4-byte words in the order of the layout.
struct Range {
  int16_t at = 0, words = 0;
};
struct Parts {
  Dtype type;
  int16_t n_fields, fields[2];
  Range ranges[2];
};
constexpr Parts kParts[] = {
    {Dtype::q4_0, 1, {0}, {{2, 4}}},
    {Dtype::q4_1, 2, {0, 2}, {{4, 4}}},
    {Dtype::q5_0, 1, {0}, {{2, 5}}},
    {Dtype::q5_1, 2, {0, 2}, {{4, 5}}},
    {Dtype::q8_0, 1, {0}, {{2, 8}}},
    {Dtype::q2_k, 2, {80, 82}, {{0, 20}}},
    {Dtype::q3_k, 1, {108}, {{96, 3}, {0, 24}}},
    {Dtype::q4_k, 2, {0, 2}, {{4, 35}}},
    {Dtype::q5_k, 2, {0, 2}, {{4, 43}}},
    {Dtype::q6_k, 1, {208}, {{192, 4}, {0, 48}}},
    {Dtype::iq4_nl, 1, {0}, {{2, 4}}},
    {Dtype::iq4_xs, 2, {0, 2}, {{4, 33}}},
};

constexpr int blocks_each(Dtype t) { return info(t).family == Family::block32 ? 2 : 1; }   // in a chunk
constexpr int head_bytes(const Parts& p) { return (blocks_each(p.type) * p.n_fields * 32 + 63) / 64 * 64; }

constexpr const Parts* parts_of(Dtype t) {
  for (const Parts& p : kParts)
    if (p.type == t) return &p;
  return nullptr;
}
constexpr bool complete() {
  for (int i = 0; i < kDtypes; i++) {
    const Parts* p = parts_of(Dtype(i));
    if ((p != nullptr) != has_x16(Dtype(i))) return false;
    if (!p) continue;
    const int words = p->ranges[0].words + p->ranges[1].words;
    if (p->n_fields * 2 + words * 4 != info(p->type).bytes) return false;
    if (size_t(head_bytes(*p) + blocks_each(p->type) * words * 64) != x16_chunk_bytes(p->type)) return false;
  }
  return true;
}
static_assert(complete());

// One row's block number `b` of a chunk, into the chunk or out of it.
template <bool kInto>
inline void move_block(const Parts& p, int head, uint8_t* plain, uint8_t* chunk, int b, int row) {
  const auto move = [](uint8_t* from, uint8_t* to, size_t n) { kInto ? memcpy(to, from, n) : memcpy(from, to, n); };
  uint8_t* field = chunk + b * p.n_fields * 32 + row * 2;
  for (int i = 0; i < p.n_fields; i++) move(plain + p.fields[i], field + i * 32, 2);
  uint8_t* word = chunk + head + b * (p.ranges[0].words + p.ranges[1].words) * 64 + row * 4;
  for (const Range& r : p.ranges) {
    const uint8_t* end = plain + r.at + r.words * 4;
    for (uint8_t* at = plain + r.at; at < end; at += 4, word += 64) move(at, word, 4);
  }
}

}  // namespace

void interleave_x16(Dtype t, const void* rows, int n_rows, int K, void* group) {
  const Parts& p = *parts_of(t);
  const int blocks = K / info(t).block, each = blocks_each(t), head = head_bytes(p);
  const size_t stride = row_bytes(t, size_t(K)), bytes = size_t(info(t).bytes);
  auto* plain = static_cast<uint8_t*>(const_cast<void*>(rows));
  auto* chunk = static_cast<uint8_t*>(group);
  for (int b = 0; b < blocks; b += each, plain += size_t(each) * bytes, chunk += x16_chunk_bytes(t)) {
    const bool full = n_rows == 16 && b + each <= blocks;
    memset(chunk, 0, full ? size_t(head) : x16_chunk_bytes(t));
    for (int r = 0; r < n_rows; r++)
      for (int i = 0; i < each && b + i < blocks; i++)
        move_block<true>(p, head, plain + size_t(r) * stride + size_t(i) * bytes, chunk, i, r);
  }
}

void extract_x16(Dtype t, const void* group, int row, int K, void* plain) {
  const Parts& p = *parts_of(t);
  const int blocks = K / info(t).block, each = blocks_each(t), head = head_bytes(p);
  auto* chunk = static_cast<uint8_t*>(const_cast<void*>(group));
  auto* to = static_cast<uint8_t*>(plain);
  for (int b = 0; b < blocks; b++, to += info(t).bytes)
    move_block<false>(p, head, to, chunk + size_t(b / each) * x16_chunk_bytes(t), b % each, row);
}

}  // namespace tealight::kernels
