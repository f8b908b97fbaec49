// Time that only moves forward.
#pragma once
#include <time.h>

#include <cstdint>

namespace tealight {

// Microseconds of CLOCK_MONOTONIC.
inline int64_t monotonic_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1'000'000 + t.tv_nsec / 1000;
}

}  // namespace tealight
