// The operators that a device implements. The ops of ops.h check shapes, allocate results and call these; kernels know
// neither broadcasting of ranks nor errors. Operands are on this device. Strides are in elements.
#pragma once
#include <span>
#include <string_view>

#include "src/tensor/tensor.h"

namespace tealight {

enum class Unary : uint8_t { scale, add_scalar, silu, gelu_tanh, gelu_erf, relu, relu_squared, sigmoid, tanh, exp, log, sqrt, softcap };
enum class Binary : uint8_t { add, sub, mul, div };
enum class Reduce : uint8_t { sum, mean, max };
enum class Activation : uint8_t { silu, gelu_tanh, gelu_erf, relu, relu_squared };

// A norm over the last dimension. `w`, `b` [d] may be null. rms: x / sqrt(mean(x^2) + eps) * (w + offset).
struct NormSpec {
  const Tensor* w = nullptr;
  const Tensor* b = nullptr;
  float eps = 1e-5f, offset = 0;
  bool layer = false;                 // layer norm: mean removed, then the same, plus b
};

// One weight of a linear group: y = x w^T + b. w [m, k] in any type that multiplies (or transposed: stride(0) == 1).
struct LinearSpec {
  const Tensor* w = nullptr;
  const Tensor* b = nullptr;          // [m] or null
};

// Which rows of a sequence's cache a query row sees, and where its own key and value go.
struct AttentionRow {
  struct KvLayer* kv;                 // of this layer and sequence
  int32_t position;                   // of the query; its key and value are stored there
  int32_t first;                      // first visible position
};

struct AttentionSpec {
  int heads = 0, kv_heads = 0, d = 0, dv = 0;
  float scale = 1, softcap = 0;
};

// Keys and values of one layer of one sequence, in tiles of 16 positions: in each tile, for each K/V head, K with the
// positions in lanes and V by rows. The memory belongs to the sequence's State.
struct KvLayer {
  Dtype dtype = Dtype::f32;           // f32, f16, q8_0 or q4_0 (then codes, after them scales: kernels/kernels.h)
  int kv_heads = 0, d = 0, dv = 0;
  int capacity = 0;                   // positions, a multiple of 16
  void* const* tiles = nullptr;       // [capacity / 16], shared with other layers; null: nothing there
  size_t k = 0;                       // bytes from a tile's begin to this layer's [kv_heads][d][16]
  size_t v = 0;                       // and to its [kv_heads][16][dv]
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;

  virtual Storage* allocate(size_t bytes) = 0;             // 64-byte aligned; count is one
  virtual void free(Storage* s) noexcept = 0;              // count has fallen to zero
  virtual void upload(const void* host, void* device, size_t bytes) = 0;
  virtual void download(const void* device, void* host, size_t bytes) = 0;
  virtual void copy_bytes(const void* from, void* to, size_t bytes) = 0;   // within device memory
  // out: contiguous or strided, dtype f32; in: any view of the same shape, widened where it is not f32.
  virtual void copy(const Tensor& in, const Tensor& out) = 0;
  virtual void fill(const Tensor& out, float value) = 0;
  virtual void unary(Unary op, const Tensor& x, float a, const Tensor& out) = 0;          // contiguous
  virtual void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out) = 0;  // a, b expanded to out's shape
  virtual void add_scaled(const Tensor& x, float s, const Tensor& out) = 0;               // out = fma(x, s, out); contiguous
  virtual void reduce(Reduce op, const Tensor& x, const Tensor& out) = 0;                  // over the last dimension
  virtual void softmax(const Tensor& x, const Tensor& out) = 0;                            // over the last dimension
  virtual void norm(const Tensor& x, const NormSpec& n, const Tensor& out) = 0;
  virtual void matmul(const Tensor& a, const Tensor& b, const Tensor& out) = 0;            // f32 [.., n, k] x [.., k, m]
  virtual void embed(const Tensor& table, std::span<const int32_t> ids, float scale, const Tensor& out) = 0;
  // ys[i] = norm(x) ws[i]^T + b (+ residual, for one weight). x [n, k], ys[i] [n, m_i], rows contiguous.
  virtual void linear(const Tensor& x, const NormSpec* norm, std::span<const LinearSpec> ws, const Tensor* residual,
                      std::span<Tensor> ys) = 0;
  virtual void gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) = 0;
  // x [n, heads, d] in place; cos, sin [n, rotated / 2].
  virtual void rope(const Tensor& x, const Tensor& cos, const Tensor& sin, bool neox) = 0;
  // Stores k, v [n, kv_heads, d] into the cache, then out [n, heads, dv] = attention of q [n, heads, d].
  virtual void attention(const AttentionSpec& spec, const Tensor& q, const Tensor& k, const Tensor& v,
                         std::span<const AttentionRow> rows, const Tensor& out) = 0;
};

}  // namespace tealight
