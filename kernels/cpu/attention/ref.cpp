#include "kernels/cpu/vec/ref.h"
#include "kernels/cpu/vec/math.h"
#include "kernels/cpu/attention/attention.h"

namespace tealight::kernels {
void attention_ref(Table& t) { fill_attention(t); }
}  // namespace tealight::kernels
