#include "kernels/cpu/vec/ref.h"
#include "kernels/cpu/vec/math.h"
#include "kernels/cpu/row/row.h"

namespace tealight::kernels {
void row_ref(Table& t) { fill_row(t); }
}  // namespace tealight::kernels
