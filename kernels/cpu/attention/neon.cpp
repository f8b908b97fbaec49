#include "kernels/cpu/vec/neon.h"
#include "kernels/cpu/vec/math.h"
#include "kernels/cpu/attention/attention.h"

namespace tealight::kernels {
void attention_neon(Table& t) { fill_attention(t); }
}  // namespace tealight::kernels
