// Reductions and functions over sixteen lanes, written once: the sequence of operations is the definition, so that every
// instruction set gives the same bits. Include after one of vec/{ref,avx2,avx512}.h.
#pragma once

namespace tealight::kernels {
namespace {

// The first n lanes (0..16), the others zero; never reads beyond them.
template <class T>
inline Vec load_n(const T* p, int n) {
  if (n == 16) return Vec::load(p);
  T tmp[16] = {};
  memcpy(tmp, p, size_t(n) * sizeof(T));
  return Vec::load(tmp);
}
template <class V>
inline void store_n(V v, float* p, int n) {
  if (n == 16) return v.store(p);
  float tmp[16];
  v.store(tmp);
  memcpy(p, tmp, size_t(n) * 4);
}

// The fixed tree: lane i takes lane i + 8, then + 4, + 2, + 1.
inline float tree_add(Vec x) {
  float f[16];
  x.store(f);
  for (int h = 8; h; h >>= 1)
    for (int i = 0; i < h; i++) f[i] += f[i + h];
  return f[0];
}
inline float tree_max(Vec x) {
  float f[16];
  x.store(f);
  for (int h = 8; h; h >>= 1)
    for (int i = 0; i < h; i++) f[i] = f[i] > f[i + h] ? f[i] : f[i + h];
  return f[0];
}

// e^x for x in [-87, 88]: n = rint(x * log2 e), r = x - n ln 2 in two steps (Cody and Waite), the Taylor polynomial of
// degree 7, n added to the exponent. Relative error below 1e-7.
inline Vec exp_range(Vec x) {
  const Vec t = Vec::add(Vec::mul(x, Vec::set(1.44269504f)), Vec::set(kRound));
  const Vec n = Vec::sub(t, Vec::set(kRound));
  Vec r = Vec::fma(n, Vec::set(-0.693359375f), x);
  r = Vec::fma(n, Vec::set(2.12194440e-4f), r);
  Vec p = Vec::set(1.0f / 5040);
  p = Vec::fma(p, r, Vec::set(1.0f / 720));
  p = Vec::fma(p, r, Vec::set(1.0f / 120));
  p = Vec::fma(p, r, Vec::set(1.0f / 24));
  p = Vec::fma(p, r, Vec::set(1.0f / 6));
  p = Vec::fma(p, r, Vec::set(0.5f));
  p = Vec::fma(p, r, Vec::set(1.0f));
  p = Vec::fma(p, r, Vec::set(1.0f));
  return Vec::add_exponent(p, t);
}
// e^x for x <= 0; zero below -87.
inline Vec exp_neg(Vec x) {
  const Vec low = Vec::set(-87.0f);
  return Vec::select_less(x, low, Vec::set(0.0f), exp_range(Vec::max(x, low)));
}
// e^x; x is clamped to [-87, 88].
inline Vec exp_clamped(Vec x) { return exp_range(Vec::min(Vec::max(x, Vec::set(-87.0f)), Vec::set(88.0f))); }

// tanh: an odd polynomial below 0.625 (Cephes tanhf), else (1 - e) / (1 + e) with e = exp(-2|x|). Absolute error below 2e-7.
inline Vec tanh(Vec x) {
  const Vec a = Vec::abs(x), z = Vec::mul(x, x), one = Vec::set(1.0f);
  Vec p = Vec::set(-5.70498872745e-3f);
  p = Vec::fma(p, z, Vec::set(2.06390887954e-2f));
  p = Vec::fma(p, z, Vec::set(-5.37397155531e-2f));
  p = Vec::fma(p, z, Vec::set(1.33314422036e-1f));
  p = Vec::fma(p, z, Vec::set(-3.33332819422e-1f));
  const Vec small = Vec::fma(Vec::mul(p, z), x, x);
  const Vec e = exp_neg(Vec::mul(a, Vec::set(-2.0f)));
  const Vec big = Vec::copysign(Vec::div(Vec::sub(one, e), Vec::add(one, e)), x);
  return Vec::select_less(a, Vec::set(0.625f), small, big);
}
// erf by Abramowitz and Stegun 7.1.26. Absolute error below 1e-6.
inline Vec erf(Vec x) {
  const Vec a = Vec::abs(x), one = Vec::set(1.0f);
  const Vec t = Vec::div(one, Vec::fma(a, Vec::set(0.3275911f), one));
  Vec p = Vec::set(1.061405429f);
  p = Vec::fma(p, t, Vec::set(-1.453152027f));
  p = Vec::fma(p, t, Vec::set(1.421413741f));
  p = Vec::fma(p, t, Vec::set(-0.284496736f));
  p = Vec::fma(p, t, Vec::set(0.254829592f));
  const Vec e = exp_neg(Vec::mul(Vec::mul(a, a), Vec::set(-1.0f)));
  return Vec::copysign(Vec::sub(one, Vec::mul(Vec::mul(p, t), e)), x);
}
// x / (1 + e^-x)
inline Vec silu(Vec x) {
  const Vec e = exp_clamped(Vec::mul(x, Vec::set(-1.0f)));
  return Vec::div(x, Vec::add(Vec::set(1.0f), e));
}
// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
inline Vec gelu_tanh(Vec x) {
  const Vec u = Vec::fma(Vec::mul(Vec::mul(x, x), Vec::set(0.044715f)), x, x);
  const Vec t = tanh(Vec::mul(u, Vec::set(0.797884561f)));
  return Vec::mul(Vec::mul(x, Vec::set(0.5f)), Vec::add(Vec::set(1.0f), t));
}
// 0.5 x (1 + erf(x / sqrt 2))
inline Vec gelu_erf(Vec x) {
  const Vec t = erf(Vec::mul(x, Vec::set(0.707106781f)));
  return Vec::mul(Vec::mul(x, Vec::set(0.5f)), Vec::add(Vec::set(1.0f), t));
}
// cap * tanh(x / cap)
inline Vec softcap1(Vec x, Vec cap) { return Vec::mul(cap, tanh(Vec::div(x, cap))); }

}  // namespace
}  // namespace tealight::kernels
