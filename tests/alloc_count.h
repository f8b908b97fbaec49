// Counts what operator new gives out, so that a test can bound the memory that a refusal takes. Include in one file a test.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <new>

inline uint64_t g_allocated_bytes = 0;

__attribute__((noinline)) void* operator new(size_t n) {
  g_allocated_bytes += n;
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new[](size_t n) { return operator new(n); }
__attribute__((noinline)) void operator delete(void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, size_t) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete[](void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete[](void* p, size_t) noexcept { std::free(p); }
