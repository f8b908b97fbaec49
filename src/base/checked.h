// Arithmetic on sizes that come from files: overflow is an answer, never a wrap-around.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

namespace tealight {

inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}
inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}
// Is [offset, offset + bytes) inside a range of `size` bytes?
inline bool inside(uint64_t offset, uint64_t bytes, uint64_t size) { return offset <= size && bytes <= size - offset; }

// n rounded down, or up, to a multiple of `to` (a power of two); the caller knows that it does not overflow.
constexpr uint64_t align_down(uint64_t n, uint64_t to) { return n & ~(to - 1); }
constexpr uint64_t align_up(uint64_t n, uint64_t to) { return (n + to - 1) & ~(to - 1); }

}  // namespace tealight
