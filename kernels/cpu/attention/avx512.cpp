#include "kernels/cpu/vec/avx512.h"
#include "kernels/cpu/vec/math.h"
#include "kernels/cpu/attention/attention.h"

namespace tealight::kernels {
void attention_avx512(Table& t) { fill_attention(t); }
}  // namespace tealight::kernels
