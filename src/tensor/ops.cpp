#include "src/tensor/ops.h"

#include <algorithm>

#include "src/base/error.h"

namespace tealight {

thread_local Tape* active_tape = nullptr;

namespace {

Tensor recorded(Op op, std::initializer_list<const Tensor*> inputs, const void* attributes, Tensor out) {
  if (active_tape) active_tape->record(active_tape, {op, {inputs.begin(), inputs.size()}, attributes, out});
  return out;
}

Shape broadcast(const char* op, const Shape& a, const Shape& b) {
  Shape s;
  s.rank = std::max(a.rank, b.rank);
  for (int i = 1; i <= s.rank; i++) {
    const int64_t x = i <= a.rank ? a[a.rank - i] : 1, y = i <= b.rank ? b[b.rank - i] : 1;
    if (x != y && x != 1 && y != 1) shape_error(op, "shapes do not broadcast", a, b);
    s[s.rank - i] = x == 1 ? y : x;
  }
  return s;
}

Tensor binary(Op op, Binary b_op, const char* name, const Tensor& a, const Tensor& b) {
  const Shape s = broadcast(name, a.shape(), b.shape());
  Tensor out = Tensor::empty(a.device(), s);
  a.device().binary(b_op, a.expand(s), b.expand(s), out);
  return recorded(op, {&a, &b}, nullptr, std::move(out));
}

void check_linear(const Tensor& x, const LinearSpec& w) {
  if (x.rank() != 2 || w.w->rank() != 2 || x.dim(1) != w.w->dim(1)) shape_error("linear", "x and w do not fit", x.shape(), w.w->shape());
  if (w.b && (w.b->rank() != 1 || w.b->dim(0) != w.w->dim(0))) shape_error("linear", "w and bias do not fit", w.w->shape(), w.b->shape());
}

}  // namespace

Tensor copy(const Tensor& x) {
  Tensor out = Tensor::empty(x.device(), x.shape());
  x.device().copy(x, out);
  return recorded(Op::copy, {&x}, nullptr, std::move(out));
}

Tensor add(const Tensor& a, const Tensor& b) { return binary(Op::add, Binary::add, "add", a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return binary(Op::sub, Binary::sub, "sub", a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return binary(Op::mul, Binary::mul, "mul", a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return binary(Op::div, Binary::div, "div", a, b); }

Tensor unary(Unary op, const Tensor& x, float a) {
  Tensor in = x.contiguous(), out = Tensor::empty(x.device(), x.shape());
  x.device().unary(op, in, a, out);
  const UnaryAttributes attributes{op, a};
  return recorded(Op::unary, {&x}, &attributes, std::move(out));
}

Tensor scale(const Tensor& x, float s) { return unary(Unary::scale, x, s); }

Tensor activate(Activation act, const Tensor& x) {
  static constexpr Unary ops[] = {Unary::silu, Unary::gelu_tanh, Unary::gelu_erf, Unary::relu, Unary::relu_squared};
  return unary(ops[size_t(act)], x);
}

Tensor reduce(Reduce op, const Tensor& x) {
  if (x.rank() == 0) fail(Code::shape, "reduce: a scalar has no last dimension");
  Shape s = x.shape();
  s.rank--;
  Tensor in = x.contiguous(), out = Tensor::empty(x.device(), s);
  x.device().reduce(op, in, out);
  return recorded(Op::reduce, {&x}, &op, std::move(out));
}

Tensor softmax(const Tensor& x) {
  if (x.rank() == 0) fail(Code::shape, "softmax: a scalar has no last dimension");
  Tensor in = x.contiguous(), out = Tensor::empty(x.device(), x.shape());
  x.device().softmax(in, out);
  return recorded(Op::softmax, {&x}, nullptr, std::move(out));
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (a.rank() < 2 || b.rank() < 2 || a.dim(-1) != b.dim(-2)) shape_error("matmul", "inner dimensions differ", a.shape(), b.shape());
  const int rank = std::max(a.rank(), b.rank());
  Shape sa = a.rank() == rank ? a.shape() : b.shape(), sb = b.rank() == rank ? b.shape() : a.shape();
  for (int i = 0; i + 2 < rank; i++)
    if (sa[i] != sb[i]) shape_error("matmul", "batch dimensions differ", a.shape(), b.shape());
  if (std::min(a.rank(), b.rank()) != rank && std::min(a.rank(), b.rank()) != 2)
    shape_error("matmul", "batch dimensions differ", a.shape(), b.shape());
  sa[-2] = a.dim(-2), sa[-1] = a.dim(-1);
  sb[-2] = b.dim(-2), sb[-1] = b.dim(-1);
  Shape so = sa;
  so[-1] = b.dim(-1);
  Tensor out = Tensor::empty(a.device(), so);
  a.device().matmul(a.expand(sa), b.expand(sb), out);
  return recorded(Op::matmul, {&a, &b}, nullptr, std::move(out));
}

Tensor norm(const Tensor& x, const NormSpec& n) {
  for (const Tensor* p : {n.w, n.b})
    if (p && (p->rank() != 1 || p->dim(0) != x.dim(-1))) shape_error("norm", "x and weight do not fit", x.shape(), p->shape());
  Tensor in = x.contiguous(), out = Tensor::empty(x.device(), x.shape());
  x.device().norm(in, n, out);
  return recorded(Op::norm, {&x, n.w, n.b}, &n, std::move(out));
}

Tensor embed(const Tensor& table, std::span<const int32_t> ids, float s) {
  if (table.rank() != 2) fail(Code::shape, "embed: the table is ", table.shape().str());
  for (int32_t id : ids)
    if (id < 0 || id >= table.dim(0)) fail(Code::request, "token id ", id, " is outside of the vocabulary of ", table.dim(0));
  Tensor out = Tensor::empty(table.device(), {int64_t(ids.size()), table.dim(1)});
  table.device().embed(table, ids, s, out);
  return recorded(Op::embed, {&table}, &ids, std::move(out));
}

Tensor gated(Activation act, const Tensor& gate, const Tensor& up) {
  if (!(gate.shape() == up.shape())) shape_error("gated", "gate and up differ", gate.shape(), up.shape());
  Tensor out = Tensor::empty(gate.device(), gate.shape());
  gate.device().gated(act, gate, up, out);
  return recorded(Op::gated, {&gate, &up}, &act, std::move(out));
}

Tensor rope(Tensor x, const Tensor& cos, const Tensor& sin, bool neox) {
  if (x.rank() != 3 || cos.rank() != 2 || cos.dim(0) != x.dim(0) || cos.dim(1) * 2 > x.dim(2) || !(cos.shape() == sin.shape()))
    shape_error("rope", "x and the table do not fit", x.shape(), cos.shape());
  if (!active_tape) {
    x.device().rope(x, cos, sin, neox);
    return x;
  }
  Tensor out = Tensor::empty(x.device(), x.shape());
  x.device().copy(x, out);
  x.device().rope(out, cos, sin, neox);
  return recorded(Op::rope, {&x, &cos, &sin}, &neox, std::move(out));
}

Tensor linear(const Tensor& x, const LinearSpec& w) {
  check_linear(x, w);
  Tensor out = Tensor::empty(x.device(), {x.dim(0), w.w->dim(0)});
  x.device().linear(x, nullptr, {&w, 1}, nullptr, {&out, 1});
  return recorded(Op::linear, {&x, w.w, w.b}, nullptr, std::move(out));
}

void linear_group(const Tensor& x, const NormSpec* n, std::span<const LinearSpec> ws, std::span<Tensor> ys) {
  if (active_tape) {
    Tensor h = n ? norm(x, *n) : x;
    for (size_t i = 0; i < ws.size(); i++) ys[i] = linear(h, ws[i]);
    return;
  }
  for (size_t i = 0; i < ws.size(); i++) {
    check_linear(x, ws[i]);
    ys[i] = Tensor::empty(x.device(), {x.dim(0), ws[i].w->dim(0)});
  }
  x.device().linear(x, n, ws, nullptr, ys);
}

Tensor linear_add(const Tensor& x, const LinearSpec& w, const Tensor& residual) {
  if (active_tape) return add(residual, linear(x, w));
  check_linear(x, w);
  Tensor out = Tensor::empty(x.device(), {x.dim(0), w.w->dim(0)});
  if (!(out.shape() == residual.shape())) shape_error("linear_add", "result and residual differ", out.shape(), residual.shape());
  x.device().linear(x, nullptr, {&w, 1}, &residual, {&out, 1});
  return out;
}

Tensor attention(const AttentionSpec& s, const Tensor& q, const Tensor& k, const Tensor& v, std::span<const AttentionRow> rows) {
  const int64_t n = int64_t(rows.size());
  if (!(q.shape() == Shape{n, s.heads, s.d})) shape_error("attention", "q", q.shape(), {n, s.heads, s.d});
  if (!(k.shape() == Shape{n, s.kv_heads, s.d})) shape_error("attention", "k", k.shape(), {n, s.kv_heads, s.d});
  if (!(v.shape() == Shape{n, s.kv_heads, s.dv})) shape_error("attention", "v", v.shape(), {n, s.kv_heads, s.dv});
  Tensor out = Tensor::empty(q.device(), {n, int64_t(s.heads) * s.dv});
  q.device().attention(s, q, k, v, rows, out);
  const AttentionAttributes attributes{&s, rows};
  return recorded(Op::attention, {&q, &k, &v}, &attributes, std::move(out));
}

}  // namespace tealight
