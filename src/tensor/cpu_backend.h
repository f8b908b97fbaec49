// The CPU as a device: kernels of one instruction set, a thread pool, and a caching pool of memory blocks.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "kernels/kernels.h"
#include "src/base/thread_pool.h"
#include "src/tensor/backend.h"

namespace tealight {

class CpuBackend final : public Backend {
 public:
  // int8_activations: quantized weights multiply int8 activations; otherwise they are widened and multiply f32 ones.
  CpuBackend(const kernels::Table& kernels, int threads, bool int8_activations);
  ~CpuBackend() override;

  std::string_view name() const override { return kernels_.isa; }
  Storage* allocate(size_t bytes) override;
  void free(Storage* s) noexcept override;
  void upload(const void* host, void* device, size_t bytes) override;
  void download(const void* device, void* host, size_t bytes) override;
  void copy_bytes(const void* from, void* to, size_t bytes) override;
  void copy(const Tensor& in, const Tensor& out) override;
  void fill(const Tensor& out, float value) override;
  void unary(Unary op, const Tensor& x, float a, const Tensor& out) override;
  void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out) override;
  void add_scaled(const Tensor& x, float s, const Tensor& out) override;
  void reduce(Reduce op, const Tensor& x, const Tensor& out) override;
  void softmax(const Tensor& x, const Tensor& out) override;
  void norm(const Tensor& x, const NormSpec& n, const Tensor& out) override;
  void matmul(const Tensor& a, const Tensor& b, const Tensor& out) override;
  void embed(const Tensor& table, std::span<const int32_t> ids, float scale, const Tensor& out) override;
  void linear(const Tensor& x, const NormSpec* norm, std::span<const LinearSpec> ws, const Tensor* residual,
              std::span<Tensor> ys) override;
  void gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) override;
  void rope(const Tensor& x, const Tensor& cos, const Tensor& sin, bool neox) override;
  void attention(const AttentionSpec& spec, const Tensor& q, const Tensor& k, const Tensor& v, std::span<const AttentionRow> rows,
                 const Tensor& out) override;

  // True once if an activation was NaN or infinite since the last call: the results since then mean nothing.
  bool take_fault() { return fault_.exchange(false, std::memory_order_relaxed); }
  uint64_t blocks_made() const { return blocks_made_; }    // memory blocks taken from the system so far
  uint64_t fork_joins() const { return pool_.jobs(); }
  // While rehearsing, operations take the memory that they would take, compute nothing, and give results that mean nothing; but for
  // softmax, of which the first `equal` rows have equal values and the others rising ones: routers choose by them.
  void rehearse(bool on, int64_t equal = 0) { rehearsing_ = on, equal_ = equal; }
  int threads() const { return pool_.threads(); }
  void start_threads() { pool_.start_now(); }
  const kernels::Table& kernels() const { return kernels_; }

  // The parts of linear(), for those who cut its work in another way. What a weight of this type multiplies with: int8 activations
  // of the family, or f32 ones (floating). Errors: Code::unsupported.
  Family input_family(Dtype t) const;
  // y[t * ldy + r] = w[r] . x[t] for rows r0 (a multiple of 16) to r1 - 1 on this thread. act: T quantized activations where
  // input_family() says so, else null, and x [T, K]. scratch [multiply_scratch(K, T)], 64-byte aligned.
  void multiply(const Tensor& w, const void* act, const float* x, int T, float* y, size_t ldy, int r0, int r1, std::byte* scratch) const;
  static size_t multiply_scratch(int K, int T);
  void read_row(const Tensor& w, int64_t row, float* out) const;   // of a matrix of any type, contiguous or interleaved, widened
  // f(thread) on all threads; see ThreadPool.
  template <class F>
  void run(const F& f) {
    pool_.run(f);
  }
  std::byte* scratch(size_t bytes_per_thread);             // threads() pieces, 64-byte aligned, each a multiple of 64; grows only

 private:
  static constexpr int64_t kSmall = 16 * 1024;             // elements or multiply-adds up to which the caller works alone
  // f(begin, end) over [0, n) in one piece on the caller when `work` elements are few, else cut into one piece a thread.
  template <class F>
  void split(int64_t n, int64_t work, const F& f) {
    if (rehearsing_) return;
    if (work <= kSmall || pool_.threads() == 1) return f(int64_t(0), n);
    pool_.run([&](int t) {
      const int64_t begin = n * t / pool_.threads(), end = n * (t + 1) / pool_.threads();
      if (begin < end) f(begin, end);
    });
  }
  void norm_rows(const float* x, const NormSpec& n, float* out, int64_t rows, int64_t d) const;   // on this thread
  // What attention() takes for these rows, or fewer, at any positions of their sequence.
  void reserve_attention(const AttentionSpec& spec, std::span<const AttentionRow> rows);

  const kernels::Table& kernels_;
  ThreadPool pool_;
  const bool int8_activations_;
  bool rehearsing_ = false;
  int64_t equal_ = 0;
  std::atomic<bool> fault_{false};

  static constexpr int kClasses = 256;                     // four sizes to every power of two
  std::atomic_flag lock_ = ATOMIC_FLAG_INIT;
  Storage* free_[kClasses] = {};                           // linked through `data`
  uint64_t blocks_made_ = 0;
  Storage* scratch_ = nullptr;
  std::vector<kernels::Attention::Row> seen_;              // of attention: each row's positions
  std::vector<int> blocks_;                                // of attention: first rows
};

}  // namespace tealight
