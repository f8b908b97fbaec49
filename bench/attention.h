// Attention over a cache that comes from memory.
#pragma once
#include "bench/timing.h"
#include "kernels/kernels.h"

namespace tealight::bench {

// One row at a depth as GB/s of keys and values, many rows as Gop/s (two operations a multiply-add).
void attention(const kernels::Table& t, const Memory& memory, const Peaks& peak, const Report& report);

}  // namespace tealight::bench
