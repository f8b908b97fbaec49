// Compiled once for each instruction set, with its flags; PEAKS names the table, PEAKS_ISA the set.
#include "bench/peaks.h"

#include "bench/peak_loops.h"

namespace tealight::bench {

extern const PeakLoops PEAKS;
constinit const PeakLoops PEAKS = {PEAKS_ISA, peak_fma, peak_int8, peak_tiles, peak_read};

}  // namespace tealight::bench
