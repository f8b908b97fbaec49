// What the parts of bench_kernels share: timing, memory, and rows of results.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

namespace tealight::bench {

// Processor time of this thread, so that other work on the machine does not count.
inline double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

// Seconds of the fastest of several calls, for at least `total` seconds.
template <class F>
double best(F f, double total) {
  double fastest = 1e30;
  const double end = now() + total;
  int runs = 0;
  do {
    const double t = now();
    f();
    fastest = std::min(fastest, now() - t);
  } while (++runs < 3 || now() < end);
  return fastest;
}

// Zeroed and never given back.
template <class T>
T* aligned(size_t n) {
  const size_t bytes = (n * sizeof(T) + 127) / 64 * 64;
  void* p = std::aligned_alloc(64, bytes);
  if (!p) std::abort();
  std::memset(p, 0, bytes);
  return static_cast<T*>(p);
}

inline uint32_t next() {
  static uint32_t state = 1;
  return state = state * 1664525 + 1013904223;
}

// n values in [-1/2, 1/2).
inline void fill(float* x, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] = float(next() >> 8) * 0x1p-24f - 0.5f;
}

constexpr size_t kMemory = size_t(256) << 20;  // weights rotate over this much, so that they come from memory

// Buffers of kMemory bytes that make small finite numbers whatever the type; [0] in 4 KiB pages, [1] in 2 MiB ones.
struct Memory {
  uint8_t* pages[2];
};
constexpr const char* kPages[2] = {"4K", "2M"};

struct Peaks {
  double fma, int8;     // Gop/s
  double read[2];       // GB/s, by kind of pages
};

// The results: columns for people, or one JSON object a line.
struct Report {
  bool json = false;
  // `peak` in the same unit; 0 where there is none. `what`: layout or tokens or sizes.
  void row(const char* kind, const char* isa, const char* type, const std::string& what, double value, const char* unit, double peak) const {
    if (json) {
      std::printf(R"({"kind":"%s","isa":"%s","type":"%s","what":"%s","value":%.4g,"unit":"%s","peak":%.4g})" "\n", kind, isa, type, what.c_str(), value, unit,
                  peak);
    } else {
      std::printf("%-10s %-8s %-8s %-24s %8.2f %-10s", kind, isa, type, what.c_str(), value, unit);
      peak > 0 ? std::printf(" %3.0f %% of %.1f\n", 100 * value / peak, peak) : std::printf("\n");
    }
    std::fflush(stdout);
  }
};

}  // namespace tealight::bench
