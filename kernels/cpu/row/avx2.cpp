#include "kernels/cpu/vec/avx2.h"
#include "kernels/cpu/vec/math.h"
#include "kernels/cpu/row/row.h"

namespace tealight::kernels {
void row_avx2(Table& t) { fill_row(t); }
}  // namespace tealight::kernels
