// Counts what operator new gives out, so that a test can bound the memory that a refusal takes. Include in one file a test.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

inline std::atomic<uint64_t> g_allocated_bytes = 0;

namespace alloc_count {
inline void* take(size_t n) {
  g_allocated_bytes.fetch_add(n, std::memory_order_relaxed);
  return std::malloc(n ? n : 1);
}
}  // namespace alloc_count

// Not inlined: else the compiler sees malloc's memory freed by delete and warns.
#define TEALIGHT_COUNTED __attribute__((noinline))
TEALIGHT_COUNTED void* operator new(size_t n) {
  if (void* p = alloc_count::take(n)) return p;
  throw std::bad_alloc();
}
TEALIGHT_COUNTED void* operator new[](size_t n) { return operator new(n); }
TEALIGHT_COUNTED void* operator new(size_t n, const std::nothrow_t&) noexcept { return alloc_count::take(n); }
TEALIGHT_COUNTED void* operator new[](size_t n, const std::nothrow_t&) noexcept { return alloc_count::take(n); }
TEALIGHT_COUNTED void operator delete(void* p) noexcept { std::free(p); }
TEALIGHT_COUNTED void operator delete(void* p, size_t) noexcept { std::free(p); }
TEALIGHT_COUNTED void operator delete[](void* p) noexcept { std::free(p); }
TEALIGHT_COUNTED void operator delete[](void* p, size_t) noexcept { std::free(p); }
TEALIGHT_COUNTED void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
TEALIGHT_COUNTED void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
