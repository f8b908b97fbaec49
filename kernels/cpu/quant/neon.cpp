#include "kernels/cpu/vec/neon.h"
#include "kernels/cpu/quant/round_neon.h"
#include "kernels/cpu/quant/quantize.h"
#include "kernels/cpu/quant/neon.h"

namespace tealight::kernels {
void quant_neon(Table& t) {
  t.quantize = quantize;
  fill_rows<multiply, set>(t);
}
}  // namespace tealight::kernels
