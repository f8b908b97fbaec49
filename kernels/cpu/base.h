// Helpers that every kernel object has its own copy of. Objects are compiled with different instruction sets, so nothing
// here may be shared by the linker: everything lies in the unnamed namespace.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"

#ifdef TEALIGHT_EMULATED
#define TL_UNROLL  // functions instead of instructions: unrolling only makes the compiler slow
#else
#define TL_UNROLL _Pragma("GCC unroll 16")
#endif
#define TL_ROLLED _Pragma("GCC unroll 1")  // for the sake of the code's size

namespace tealight::kernels {
namespace {

inline uint16_t load_u16(const void* p) {
  uint16_t v;
  memcpy(&v, p, 2);
  return v;
}
inline uint32_t bits(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
inline float from_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

// IEEE binary16 to binary32, exact.
inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 1023;
  if (exponent == 31) return from_bits(sign | 0x7f800000 | (mantissa ? 0x400000 : 0) | mantissa << 13);
  if (exponent) return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
  return from_bits(sign | bits(float(mantissa) * 0x1p-24f));
}
// Round to nearest even; out of range becomes infinity; NaN stays NaN.
inline uint16_t f32_to_f16(float f) {
  const uint32_t u = bits(f), a = u & 0x7fffffff;
  const uint16_t sign = uint16_t((u >> 16) & 0x8000);
  if (a > 0x7f800000) return uint16_t(sign | 0x7e00 | ((a >> 13) & 1023));
  if (a >= 0x477ff000) return uint16_t(sign | 0x7c00);                                 // 65520 and above
  if (a < 0x38800000) {                                                                // below 2^-14: a multiple of 2^-24
    return uint16_t(sign | (bits(from_bits(a) + 0.5f) - bits(0.5f)));                  // the addition rounds at 2^-24
  }
  return uint16_t(sign | ((a + 0xfff + ((a >> 13) & 1) - (112u << 23)) >> 13));
}
inline float bf16_to_f32(uint16_t h) { return from_bits(uint32_t(h) << 16); }
inline float load_f16(const void* p) { return f16_to_f32(load_u16(p)); }

// Round to nearest even for |x| < 2^22, by the addition that leaves no fraction bits.
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
inline float round_even(float x) { return (x + kRound) - kRound; }

inline float fma1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
// A number as a type, for generic lambdas.
template <int N>
struct Count {
  static constexpr int value = N;
};

inline int min_int(int a, int b) { return a < b ? a : b; }

}  // namespace
}  // namespace tealight::kernels
