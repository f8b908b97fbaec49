#include "kernels/cpu/vec/avx2.h"
#include "kernels/cpu/vec/math.h"
#include "kernels/cpu/float/few_avx.h"
#include "kernels/cpu/float/float.h"

namespace tealight::kernels {
void float_avx2(Table& t) { fill_float(t); }
}  // namespace tealight::kernels
