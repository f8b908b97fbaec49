#include "kernels/cpu/vec/avx2.h"
#include "kernels/cpu/vec/math.h"
#include "kernels/cpu/attention/attention.h"

namespace tealight::kernels {
void attention_avx2(Table& t) { t.attention = attention; }
}  // namespace tealight::kernels
