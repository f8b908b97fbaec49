// Rows: norms, rope, softmax, elementwise. Written once over sixteen lanes; element i of a row lies in lane i mod 16 of
// every sum, sums run in rising i and end in the fixed tree. Include after vec/*.h and vec/math.h.
#pragma once

namespace tealight::kernels {
namespace {

// f(i, n): lanes i..i+n-1 of the row, n = 16 except at the end.
template <class F>
inline void each16(size_t n, F f) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, 16);
  if (i < n) f(i, int(n - i));
}

void rms_norm(const float* x, const float* w, float offset, float eps, float* out, int n) {
  Vec sum = Vec::set(0.0f);
  each16(size_t(n), [&](size_t i, int m) {
    const Vec v = load_n(x + i, m);
    sum = Vec::fma(v, v, sum);
  });
  const float r = 1.0f / __builtin_sqrtf(tree_add(sum) / float(n) + eps);
  each16(size_t(n), [&](size_t i, int m) {
    Vec v = Vec::mul(load_n(x + i, m), Vec::set(r));
    if (w) v = Vec::mul(v, Vec::add(load_n(w + i, m), Vec::set(offset)));
    store_n(v, out + i, m);
  });
}

void layer_norm(const float* x, const float* w, const float* b, float eps, float* out, int n) {
  Vec sum = Vec::set(0.0f), squares = Vec::set(0.0f);
  each16(size_t(n), [&](size_t i, int m) { sum = Vec::add(sum, load_n(x + i, m)); });
  const Vec mean = Vec::set(tree_add(sum) / float(n));
  each16(size_t(n), [&](size_t i, int m) {
    float d[16] = {};
    store_n(Vec::sub(load_n(x + i, m), mean), d, m);
    const Vec v = Vec::load(d);
    squares = Vec::fma(v, v, squares);
  });
  const float r = 1.0f / __builtin_sqrtf(tree_add(squares) / float(n) + eps);
  each16(size_t(n), [&](size_t i, int m) {
    Vec v = Vec::mul(Vec::sub(load_n(x + i, m), mean), Vec::set(r));
    if (w) v = Vec::mul(v, load_n(w + i, m));
    if (b) v = Vec::add(v, load_n(b + i, m));
    store_n(v, out + i, m);
  });
}

// (a, b) -> (a cos - b sin, b cos + a sin): the product with sin is rounded, the other is fused.
void rope(float* x, const float* cos, const float* sin, int n, bool neox) {
  const int half = n / 2;
  if (!neox) {
    for (int i = 0; i < half; i++) {
      const float a = x[2 * i], b = x[2 * i + 1], s = sin[i], c = cos[i];
      x[2 * i] = fma1(a, c, -(b * s));
      x[2 * i + 1] = fma1(b, c, a * s);
    }
    return;
  }
  each16(size_t(half), [&](size_t i, int m) {
    const Vec a = load_n(x + i, m), b = load_n(x + half + i, m), c = load_n(cos + i, m), s = load_n(sin + i, m);
    store_n(Vec::fma(a, c, Vec::mul(Vec::mul(b, s), Vec::set(-1.0f))), x + i, m);
    store_n(Vec::fma(b, c, Vec::mul(a, s)), x + half + i, m);
  });
}

void softmax(float* x, int n) {
  const float inf = __builtin_inff();
  Vec most = Vec::set(-inf), sum = Vec::set(0.0f);
  each16(size_t(n), [&](size_t i, int m) {
    float v[16];
    Vec::set(-inf).store(v);
    memcpy(v, x + i, size_t(m) * 4);
    most = Vec::max(most, Vec::load(v));
  });
  const Vec top = Vec::set(tree_max(most));
  each16(size_t(n), [&](size_t i, int m) {
    float e[16] = {};
    store_n(exp_neg(Vec::sub(load_n(x + i, m), top)), e, m);
    sum = Vec::add(sum, Vec::load(e));
    memcpy(x + i, e, size_t(m) * 4);
  });
  const Vec scale = Vec::set(1.0f / tree_add(sum));
  each16(size_t(n), [&](size_t i, int m) { store_n(Vec::mul(load_n(x + i, m), scale), x + i, m); });
}

void add(const float* a, const float* b, float* out, size_t n) {
  each16(n, [&](size_t i, int m) { store_n(Vec::add(load_n(a + i, m), load_n(b + i, m)), out + i, m); });
}
void mul(const float* a, const float* b, float* out, size_t n) {
  each16(n, [&](size_t i, int m) { store_n(Vec::mul(load_n(a + i, m), load_n(b + i, m)), out + i, m); });
}
void scale(const float* a, float s, float* out, size_t n) {
  each16(n, [&](size_t i, int m) { store_n(Vec::mul(load_n(a + i, m), Vec::set(s)), out + i, m); });
}
void fma_scalar(const float* a, float s, const float* c, float* out, size_t n) {
  each16(n, [&](size_t i, int m) {
    store_n(Vec::fma(load_n(a + i, m), Vec::set(s), load_n(c + i, m)), out + i, m);
  });
}
// out = F(gate) * up, or F(gate) where up is null
template <Vec (*F)(Vec)>
void gate_mul(const float* gate, const float* up, float* out, size_t n) {
  each16(n, [&](size_t i, int m) {
    const Vec v = F(load_n(gate + i, m));
    store_n(up ? Vec::mul(v, load_n(up + i, m)) : v, out + i, m);
  });
}
void softcap(const float* x, float cap, float* out, size_t n) {
  each16(n, [&](size_t i, int m) { store_n(softcap1(load_n(x + i, m), Vec::set(cap)), out + i, m); });
}
bool all_finite(const float* x, size_t n) {
  uint32_t bad = 0;
  for (size_t i = 0; i < n; i++) bad |= uint32_t((bits(x[i]) & 0x7f800000) == 0x7f800000);
  return !bad;
}

void fill_row(Table& t) {
  t.rms_norm = rms_norm;
  t.layer_norm = layer_norm;
  t.rope = rope;
  t.softmax = softmax;
  t.add = add;
  t.mul = mul;
  t.scale = scale;
  t.fma_scalar = fma_scalar;
  t.silu_mul = gate_mul<silu>;
  t.gelu_tanh_mul = gate_mul<gelu_tanh>;
  t.gelu_erf_mul = gate_mul<gelu_erf>;
  t.softcap = softcap;
  t.all_finite = all_finite;
}

}  // namespace
}  // namespace tealight::kernels
