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
//
// Positions are outermost: tiles of 16 positions, in each of them layer after layer, each layer K and V of its heads as KvLayer
// says and padded to 64 bytes. So the first n positions are one range of bytes, whatever the capacity: a snapshot. It is the same on
// every machine (little-endian).
class State {
 public:
  struct LayerSpec {
    int kv_heads, d, dv;
  };
  static constexpr uint64_t kAlignment = 64 << 10;   // of the memory, and of snapshots in files: no system has larger pages

  // capacity: positions, rounded up to 16. Fails with Code::memory, naming the bytes.
  State(Backend& device, std::span<const LayerSpec> layers, Dtype dtype, int capacity);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Of `positions`, rounded up to 16.
  static uint64_t bytes_needed(std::span<const LayerSpec> layers, Dtype dtype, int positions);
  KvLayer& layer(int i) { return layers_[size_t(i)]; }
  int capacity() const { return capacity_; }

  // Snapshots of the first n positions: snapshot_bytes(n), whole tiles; what lies beyond position n in the last one is zero.
  uint64_t snapshot_bytes(int n) const { return tile_bytes_ * uint64_t((n + 15) / 16); }
  void save(int first, int n, std::byte* to) const;  // the tiles from position `first` on, a multiple of 16
  void restore(int n, const std::byte* from);        // sets length
  // The same from a file, without a copy where the device can: the pages become private ones as they are written.
  void restore_mapped(int n, const std::byte* from, int fd, uint64_t offset);

  int length = 0;

 private:
  std::vector<KvLayer> layers_;
  int capacity_ = 0;
  uint64_t tile_bytes_ = 0;
  Tensor memory_;
  char* begin_ = nullptr;
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
