#include "kernels/cpu/vec/avx512.h"
#include "kernels/cpu/vec/math.h"
#include "kernels/cpu/row/row.h"

namespace tealight::kernels {
void row_avx512(Table& t) { fill_row(t); }
}  // namespace tealight::kernels
