#include "kernels/cpu/vec/neon.h"
#include "kernels/cpu/quant/round_neon.h"
#include "kernels/cpu/quant/quantize.h"
#include "kernels/cpu/quant/neon.h"

namespace tealight::kernels {
void quant_neon(Table& t) { fill_quant(t); }
}  // namespace tealight::kernels
