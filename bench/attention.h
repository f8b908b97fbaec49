// Attention over a cache that comes from memory.
#pragma once
#include "bench/timing.h"
#include "kernels/kernels.h"

namespace tealight::bench {

// GB/s of keys and values; `peak` is what the set's read loop does on each kind of pages.
void attention(const kernels::Table& t, const Memory& memory, const double peak[2], const Report& report);

}  // namespace tealight::bench
