// Counts heap allocations of the whole test executable: include once, in its one source file.
#pragma once
#include <cstdlib>
#include <new>

inline size_t allocations = 0;

// noinline: g++ 12 takes the inlined pair of malloc and free for a mismatch.
#define TEALIGHT_NOINLINE __attribute__((noinline))

TEALIGHT_NOINLINE void* operator new(size_t n) {
  allocations++;
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
TEALIGHT_NOINLINE void* operator new[](size_t n) { return operator new(n); }
TEALIGHT_NOINLINE void operator delete(void* p) noexcept { std::free(p); }
TEALIGHT_NOINLINE void operator delete[](void* p) noexcept { std::free(p); }
TEALIGHT_NOINLINE void operator delete(void* p, size_t) noexcept { std::free(p); }
TEALIGHT_NOINLINE void operator delete[](void* p, size_t) noexcept { std::free(p); }
