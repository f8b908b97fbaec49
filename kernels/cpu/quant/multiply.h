// What a set has for each integer type, and the loops over rows, tokens and pieces of K around it, which are not compiled for
// any set; the written order is in quant/ref.cpp.
//   one token    lanes are k of 8 plain rows, folded so that they become rows; few: rows of groups in the x16 layout
//   else         16 rows at a time are unpacked into a panel and multiplied with tiles of tokens
#pragma once
#include "kernels/cpu/act.h"
#include "kernels/cpu/parts.h"
#include "kernels/cpu/quant/panel.h"

namespace tealight::kernels {

constexpr int kSideBySide = 4;

// Unpack blocks b0 .. b0 + blocks - 1 of rows r .. r + 15 (rows beyond `last` repeat it), or of a group.
struct Fill {
  void (*plain)(const void* w, size_t stride, int r, int last, int b0, int blocks, const Panel& p);
  void (*x16)(const uint8_t* group, int b0, int blocks, const Panel& p);
};
struct QuantCode {
  Dtype type;
  int sub, offset;  // kSub and kOffset of the type
  bool min;         // whether it has m or dmin
  // 8 rows `stride` bytes apart times one token; the rows of up to kSideBySide neighbouring groups times one token, or times two,
  // each in a tile of one (null: one after the other)
  void (*rows8)(const uint8_t* w, size_t stride, int blocks, const ActTile& a, float* out);
  using Rows16 = void (*)(const uint8_t* group, int groups, int blocks, const ActTile* a, float* out, size_t ldo);
  Rows16 x16_one, x16_two;
  Fill own;
  const Fill* fill;  // own, or that of another set
  // a panel times a tile of one token, a tile of 4, two of 4 (may be null); `first`: its first block is the first of the rows
  using Tile = void (*)(const Panel& p, int blocks, const ActTile* a, float* y, size_t ldy, bool first);
  Tile one, four, eight;
};
struct QuantSet {
#define TL_ROW(Type, name) QuantCode name;
  TL_INTEGER_TYPES(TL_ROW)
#undef TL_ROW
};

// The arguments of Table::MatmulInt.
struct Matmul {
  const void* w;
  int K;
  const void* act;
  int T;
  float* y;
  size_t ldy;
  int r0, r1;
  void* scratch;
};
using Multiply = void(const QuantCode& code, bool x16, const Matmul& m);
Multiply multiply;

// The sets that others borrow from.
extern const QuantSet quant_set_avx2, quant_set_avx512;

// Unpacks `blocks` blocks from b0 on of 16 rows from r on.
void unpack(const QuantCode& code, bool x16, const Matmul& m, int r, int b0, int blocks, const Panel& p);

namespace {

template <Multiply* multiply_by, const QuantSet& set, QuantCode QuantSet::*code, bool x16>
void matmul(const void* w, int K, const void* act, int T, float* y, size_t ldy, int r0, int r1, void* scratch) {
  multiply_by(set.*code, x16, {w, K, act, T, y, ldy, r0, r1, scratch});
}
template <Multiply* multiply_by, const QuantSet& set, QuantCode QuantSet::*code>
void fill_row(Table& t, Dtype type) {
  t.matmul_int[int(type)] = matmul<multiply_by, set, code, false>;
  t.matmul_x16[int(type)] = matmul<multiply_by, set, code, true>;
}
template <Multiply* multiply_by, const QuantSet& set>
void fill_rows(Table& t) {
#define TL_ROW(Type, name) fill_row<multiply_by, set, &QuantSet::name>(t, Dtype::name);
  TL_INTEGER_TYPES(TL_ROW)
#undef TL_ROW
}

}  // namespace
}  // namespace tealight::kernels
