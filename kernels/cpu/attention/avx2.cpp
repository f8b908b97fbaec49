#include "kernels/cpu/vec/avx2.h"
#include "kernels/cpu/vec/math.h"
#include "kernels/cpu/attention/attention.h"

namespace tealight::kernels {
void attention_avx2(Table& t) { fill_attention(t); }
}  // namespace tealight::kernels
