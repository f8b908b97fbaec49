#include "kernels/cpu/vec/neon.h"
#include "kernels/cpu/vec/math.h"
#include "kernels/cpu/row/row.h"

namespace tealight::kernels {
void row_neon(Table& t) { fill_row(t); }
}  // namespace tealight::kernels
