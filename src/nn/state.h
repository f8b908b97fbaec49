// What a sequence carries between steps, and which rows one step evaluates.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/tensor/backend.h"

namespace tealight::nn {

// The keys and values of one sequence, all layers, in one block of the device's memory (on the CPU its pages come into being
// as positions are written). `length` positions hold tokens.
class State {
 public:
  struct LayerSpec {
    int kv_heads, d, dv;
  };
  // capacity: positions, rounded up to 16. Fails with Code::memory, naming the bytes.
  State(Backend& device, std::span<const LayerSpec> layers, Dtype dtype, int capacity);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  static uint64_t bytes_needed(std::span<const LayerSpec> layers, Dtype dtype, int capacity);
  KvLayer& layer(int i) { return layers_[size_t(i)]; }
  int capacity() const { return capacity_; }

  int length = 0;

 private:
  std::vector<KvLayer> layers_;
  int capacity_ = 0;
  Tensor memory_;
};

// The rows of one forward pass: for each its token, position and sequence. Rows of one sequence are in rising positions.
struct Batch {
  std::span<const int32_t> ids;
  std::span<const int32_t> positions;
  std::span<State* const> states;                    // one a row
  std::vector<AttentionRow>& scratch;                // reused from step to step

  // The rows of one layer; `window` > 0: a query sees itself and the window - 1 positions before.
  std::span<const AttentionRow> rows(int layer, int window) const;
  int64_t size() const { return int64_t(ids.size()); }
};

}  // namespace tealight::nn
