// What each kernel object exports: one function a family and instruction set that fills its part of a table.
#pragma once
#include "kernels/kernels.h"

namespace tealight::kernels {

#define TL_PARTS(isa) \
  void quant_##isa(Table& t); \
  void float_##isa(Table& t); \
  void row_##isa(Table& t); \
  void attention_##isa(Table& t);
TL_PARTS(ref)
TL_PARTS(avx2)
TL_PARTS(avx512)
TL_PARTS(neon)
#undef TL_PARTS
// Whether several streams that the CPU prefetches by itself bring more than one that is prefetched by software: 1.2 to 1.5 times as
// much on a Zen 3; on a Zen 5 a quarter to three quarters. Has no influence on results.
extern bool side_by_side;

void quant_avxvnni(Table& t);  // the rest is avx2's
void quant_amx(Table& t);      // the rest is avx512's
void quant_i8mm(Table& t);     // the rest is neon's

}  // namespace tealight::kernels
