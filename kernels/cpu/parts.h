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
void quant_avxvnni(Table& t);  // the rest is avx2's
void quant_amx(Table& t);      // the rest is avx512's
void quant_i8mm(Table& t);     // the rest is neon's

}  // namespace tealight::kernels
