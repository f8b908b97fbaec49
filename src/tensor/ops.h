// The operators: eager plain functions over tensors. Each checks its shapes (Code::shape, naming the op and both shapes),
// allocates its result on the operands' device, and tells the active tape. Results are f32.
#pragma once
#include <span>

#include "src/tensor/backend.h"
#include "src/tensor/tensor.h"

namespace tealight {

Tensor copy(const Tensor& x);                              // contiguous, f32
Tensor add(const Tensor& a, const Tensor& b);              // NumPy broadcasting, as for sub, mul and div
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor scale(const Tensor& x, float s);
Tensor unary(Unary op, const Tensor& x, float a = 0);
Tensor activate(Activation act, const Tensor& x);
Tensor reduce(Reduce op, const Tensor& x);                 // over the last dimension, which is dropped
Tensor softmax(const Tensor& x);                           // over the last dimension
Tensor matmul(const Tensor& a, const Tensor& b);           // [.., n, k] x [.., k, m]; leading dimensions equal or one of rank 2
Tensor norm(const Tensor& x, const NormSpec& n);
// Rows of a table [vocab, d] in any type, times `scale`.
Tensor embed(const Tensor& table, std::span<const int32_t> ids, float scale = 1);
// act(gate) * up
Tensor gated(Activation act, const Tensor& gate, const Tensor& up);
// Rotates the first 2 * cos.dim(1) values of every head: x [n, heads, d], cos and sin [n, rotated / 2]. Pairs (i, i + r/2)
// with neox, else (2i, 2i + 1) (Su et al. 2021, arXiv 2104.09864, section 3.4.2). Works in place when no tape is active.
Tensor rope(Tensor x, const Tensor& cos, const Tensor& sin, bool neox);

// Weights that share an input: ys[i] = norm(x) ws[i]^T + b[i]; one normalization and one quantization of the activation,
// one fork-join. x [n, k], ys[i] [n, m_i]. `norm` may be null. The reference composition is norm() and linear() for each.
void linear_group(const Tensor& x, const NormSpec* norm, std::span<const LinearSpec> ws, std::span<Tensor> ys);
Tensor linear(const Tensor& x, const LinearSpec& w);
// residual + (x w^T + b)
Tensor linear_add(const Tensor& x, const LinearSpec& w, const Tensor& residual);

// Stores k, v [n, kv_heads, d] at the rows' positions and returns the attention [n, heads * dv] of q [n, heads, d] over
// what each row sees. Scores: scale * q.k (soft-capped), softmax, weighted sum of values.
Tensor attention(const AttentionSpec& spec, const Tensor& q, const Tensor& k, const Tensor& v, std::span<const AttentionRow> rows);

// --- the tape's hook ---------------------------------------------------------------------------------------------------
// While a tape is active (training), every op reports itself. Fused ops report their reference composition instead.
enum class Op : uint8_t { copy, add, sub, mul, div, unary, reduce, softmax, matmul, norm, embed, gated, rope, linear, attention };

struct UnaryAttributes {
  Unary op;
  float a;
};
struct AttentionAttributes {
  const AttentionSpec* spec;
  std::span<const AttentionRow> rows;
};

struct OpRecord {
  Op op;
  std::span<const Tensor* const> inputs;   // in the order of the op's arguments; absent ones are null
  const void* attributes;                  // valid during the call: UnaryAttributes, AttentionAttributes, NormSpec, Reduce,
                                           // Activation, bool (rope: neox), span of ids (embed); null for the others
  Tensor& output;
};

struct Tape {
  void (*record)(Tape* self, const OpRecord& r);
};
extern thread_local Tape* active_tape;

}  // namespace tealight
