// Sixteen float lanes in portable C++. Its operations define those of the other sets.
#pragma once
#include "kernels/cpu/base.h"
#undef TL_UNROLL
#define TL_UNROLL  // small rather than fast

namespace tealight::kernels {
namespace {

#define TL_LANES for (int i = 0; i < 16; i++)

struct Vec {
  static constexpr int kRegisters = 0;  // how many Vec the register file holds; only shapes loops
  float v[16];

  static Vec set(float x) {
    Vec r;
    TL_LANES r.v[i] = x;
    return r;
  }
  static Vec load(const float* p) {
    Vec r;
    memcpy(r.v, p, sizeof r.v);
    return r;
  }
  static Vec load(const uint16_t* p) {  // f16
    Vec r;
    TL_LANES r.v[i] = load_f16(p + i);
    return r;
  }
  static Vec load(const int8_t* p) {
    Vec r;
    TL_LANES r.v[i] = float(p[i]);
    return r;
  }
  void store(float* p) const { memcpy(p, v, sizeof v); }
  static Vec add(Vec a, Vec b) {
    TL_LANES a.v[i] += b.v[i];
    return a;
  }
  static Vec sub(Vec a, Vec b) {
    TL_LANES a.v[i] -= b.v[i];
    return a;
  }
  static Vec mul(Vec a, Vec b) {
    TL_LANES a.v[i] *= b.v[i];
    return a;
  }
  static Vec div(Vec a, Vec b) {
    TL_LANES a.v[i] /= b.v[i];
    return a;
  }
  static Vec fma(Vec a, Vec b, Vec c) {  // a * b + c, rounded once
    TL_LANES c.v[i] = fma1(a.v[i], b.v[i], c.v[i]);
    return c;
  }
  static Vec max(Vec a, Vec b) {
    TL_LANES a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
    return a;
  }
  static Vec min(Vec a, Vec b) {
    TL_LANES a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
    return a;
  }
  static Vec select_less(Vec a, Vec b, Vec x, Vec y) {  // a < b ? x : y
    TL_LANES x.v[i] = a.v[i] < b.v[i] ? x.v[i] : y.v[i];
    return x;
  }
  static Vec abs(Vec a) {
    TL_LANES a.v[i] = from_bits(bits(a.v[i]) & 0x7fffffff);
    return a;
  }
  static Vec copysign(Vec a, Vec sign) {
    TL_LANES a.v[i] = from_bits((bits(a.v[i]) & 0x7fffffff) | (bits(sign.v[i]) & 0x80000000));
    return a;
  }
  static Vec add_exponent(Vec a, Vec n) {  // adds the low 9 bits of n's pattern to the exponent field of a
    TL_LANES a.v[i] = from_bits(bits(a.v[i]) + (bits(n.v[i]) << 23));
    return a;
  }
};
#undef TL_LANES

}  // namespace
}  // namespace tealight::kernels
