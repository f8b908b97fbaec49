#include "kernels/cpu/vec/neon.h"
#include "kernels/cpu/vec/math.h"
#include "kernels/cpu/float/few_neon.h"
#include "kernels/cpu/float/float.h"

namespace tealight::kernels {
void float_neon(Table& t) { fill_float(t); }
}  // namespace tealight::kernels
