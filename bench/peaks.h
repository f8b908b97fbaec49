// The loops of peak_loops.h as each instruction set compiles them: what its kernels can reach at most.
#pragma once
#include <cstddef>

namespace tealight::bench {

struct PeakLoops {
  const char* isa;                                       // a word of TEALIGHT_ISA
  double (*fma)();                                       // operations of a call; 0: the set has none
  double (*int8)();
  double (*tiles)();
  void (*read)(const char* p, size_t n, size_t ahead);
};

}  // namespace tealight::bench
