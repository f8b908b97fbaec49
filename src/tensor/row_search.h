// The rows of a matrix whose products with a vector are largest, found without reading most of the matrix: the best few of a
// vocabulary's logits, with the bits that a full product would have.
//
// Beside the matrix W [rows, K] lies a coarse copy C of about half its size or less: its inputs in another order, those first that
// are usually large, in Q8_0, the others in Q4_0. With x the vector as W's kernel multiplies it, and x' as C's kernels do, both in C's
// order and cut into `high` and `low` inputs, for each row (Cauchy-Schwarz)
//   w.x <= c.x' + |w - c|_low |x'|_low + |w| (|x - x'| + e |x'|_high + rounding),      e = the largest |w - c|_high / |w|
// where |w - c|_low and |w| are stored, rounded up. Rows whose bound is below the k-th best of some exact products cannot be among
// the k best; the others, usually few, are computed exactly.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/tensor/cpu_backend.h"

namespace tealight {

class RowSearch {
 public:
  static constexpr int kMaxBest = 64;        // k
  static constexpr int kMaxVectors = 3;      // searched for at a time: of more, all products together take less time than the bounds
  static constexpr double kWorthless = 0.35; // share of the rows from which on a search costs as much as it saves
  struct Row {
    int32_t id;
    float value;
  };

  // Bytes of the coarse copy; 0: it would not be worth while, as W is small or nearly as coarse, or has no such form.
  static uint64_t bytes_for(const Tensor& w);

  // Makes the coarse copy piece by piece. to [bytes_for(w)], 64-byte aligned, filled with zeros; energy [K]: how large each input is
  // usually, squared (it has an influence on speed alone).
  class Maker {
   public:
    Maker(CpuBackend& device, Tensor w, std::span<const double> energy, std::byte* to);
    bool step(int64_t groups);               // of 16 rows; false: all is done
    int64_t made() const { return next_; }   // groups, the first ones
   private:
    float group(int64_t g, float* rows, std::byte* blocks) const;   // returns its largest |w - c|_high / |w|
    CpuBackend& device_;
    const Tensor w_;
    std::byte* to_;
    int64_t next_ = 0;
  };

  // bytes: what a Maker has made for w; `keep` holds them alive. Errors: Code::format where they do not fit w.
  RowSearch(CpuBackend& device, Tensor w, std::span<const std::byte> bytes, std::shared_ptr<const void> keep);
  ~RowSearch();

  // For each row of x [n, K], n <= kMaxVectors: the k rows of w with the largest products, best first, the lower id of equals.
  // best [n * k], k <= kMaxBest. False, and best means nothing: a value or a product is not finite, or more than most_share of the
  // groups of 16 rows would have to be computed exactly. Takes no memory.
  bool find(const Tensor& x, int k, std::span<Row> best, double most_share = 1);
  // Share of the last find's groups that had to be computed exactly, or would have.
  double exact_share() const { return exact_share_; }
  // The share of the first `groups` groups that would be left for a vector x [1, K] whose best product is known.
  double left_of(const Tensor& x, float top, int64_t groups);
  std::span<const std::byte> bytes() const { return bytes_; }   // as they were given

 private:
  struct Query;                              // one vector, in both forms
  struct Best;                               // the k best so far
  bool prepare(const Tensor& x);
  static size_t scan_scratch(int64_t K, int n);
  void scan(int64_t g0, int64_t g1, std::span<Best> best, std::byte* scratch);
  void score(int64_t group, const Query& q, Best& best, std::byte* scratch) const;

  CpuBackend& device_;
  const Tensor w_;
  const int64_t groups_;
  const int K_, high_;
  const uint32_t* order_;                    // [K] input of W at each place of C
  const uint16_t *residual_, *norm_;         // f16 [groups * 16]: |w - c|_low, |w|
  Tensor high_rows_, low_rows_;              // C, in the x16 layout
  float high_error_;
  std::shared_ptr<const void> keep_;
  std::span<const std::byte> bytes_;

  // Reused from call to call, of kMaxVectors vectors.
  std::vector<Query> queries_;
  Tensor values_;                            // f32: one vector in C's order, and as C sees it; of all the high and the low inputs
  Tensor one_, coarse_high_, coarse_low_;    // activations of one vector's part, and of all
  std::vector<float> bounds_;                // [vector][group]: largest bound of its rows
  std::vector<Row> kept_;                    // [thread][vector][kMaxBest]: what looks best
  std::vector<int> n_kept_;                  // [thread][vector]
  std::vector<Row> found_rows_;              // [thread][kMaxBest]: what is best
  std::vector<int> found_;                   // [thread]; -1: not finite
  std::vector<int64_t> left_;                // groups to be computed
  double exact_share_ = 0;
};

}  // namespace tealight
