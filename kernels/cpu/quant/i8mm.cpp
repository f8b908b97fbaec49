#include "kernels/cpu/vec/neon.h"
#include "kernels/cpu/quant/round_neon.h"
#include "kernels/cpu/quant/quantize.h"
#define TL_I8MM 1
#include "kernels/cpu/quant/neon.h"

namespace tealight::kernels {
void quant_i8mm(Table& t) {
  t.quantize = quantize;
  fill_rows<multiply, set>(t);
}
}  // namespace tealight::kernels
