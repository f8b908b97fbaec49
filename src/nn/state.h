// What a sequence carries between steps, and which rows one step evaluates.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/tensor/backend.h"

namespace tealight::nn {

// How the states of one model lie in memory, and that memory. It is handed out in tiles of 16 positions, which several states may
// share: a tile holds layer after layer, of each K and V of its heads as KvLayer says, padded to 64 bytes. Layers that see
// every position and layers with a window have tiles of their own, so that those before the window can be dropped.
// Not thread-safe; outlives its states.
class StateMemory {
 public:
  struct LayerSpec {
    int kv_heads, d, dv;
    int window = 0;                    // > 0: a query sees itself and the window - 1 positions before
  };
  // Positions before a window that are kept nevertheless, so that a sequence can go back by so many.
  static constexpr int kRewind = 256;

  // longest_pass: positions that are evaluated together at most; 0: layers with a window keep all positions, too.
  StateMemory(Backend& device, std::span<const LayerSpec> layers, Dtype dtype, int longest_pass);
  StateMemory(const StateMemory&) = delete;
  StateMemory& operator=(const StateMemory&) = delete;

  Dtype dtype() const { return dtype_; }
  uint64_t tile_bytes() const { return groups_[0].bytes + groups_[1].bytes; }   // of 16 positions of all layers
  uint64_t bytes_needed(int64_t positions) const;     // by one state
  int64_t positions_in(uint64_t bytes) const;         // most positions of a state that needs no more

 private:
  friend class State;
  static constexpr int kGroups = 2;
  struct Tile {
    void* data;
    int users;
    Tile* next;                        // in the list of free ones
  };
  struct Group {
    uint64_t bytes = 0;                // of a tile
    int window = 0;                    // the widest; 0: all positions are kept
    int most = 0;                      // tiles of one state; 0: any number
    int made = 0, reserved = 0;
    Tile* free = nullptr;
    std::vector<Tensor> slabs;         // of tiles; their pages come into being as positions are written
    std::vector<std::unique_ptr<Tile[]>> tiles;
    int tiles_for(int64_t positions) const;
    int first_needed(int position) const;    // tile, by a query at this position
  };
  void reserve(Group& g, int tiles);
  Tile* take(Group& g);
  static void drop(Group& g, Tile* t);

  Backend& device_;
  Dtype dtype_;
  Group groups_[kGroups];              // layers that see everything; layers with a window
  struct Layer {
    KvLayer kv;                        // but for its tiles
    int group;
  };
  std::vector<Layer> layers_;
};

// The keys and values of one sequence, all layers.
class State {
 public:
  // capacity: positions, rounded up to 16. Its tiles are reserved: nothing that follows allocates. Fails with Code::memory.
  State(StateMemory& memory, int capacity);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  KvLayer& layer(int i) { return layers_[size_t(i)]; }
  int capacity() const { return capacity_; }

  // Makes positions begin .. end - 1 writable, which follow those that are there or overwrite them: tiles that are shared are
  // copied, and those before the windows dropped.
  void prepare(int begin, int end);
  // Are the positions there that queries from this one on see?
  bool holds(int position) const;
  // Takes over the first n positions of a state of the same memory that holds(n). Both go on as they like: a tile is copied by
  // who writes to it first.
  void share(const State& from, int n);

  // Snapshots of the first n positions: snapshot_bytes(n), tile after tile, each with the layers that see everything before those
  // with a window; what lies beyond position n in the last one is zero. It is the same on every machine (little-endian).
  uint64_t snapshot_bytes(int n) const { return memory_.tile_bytes() * uint64_t((n + 15) / 16); }
  bool complete() const;                             // no layer has dropped a position: it can be saved
  void save(int first, int n, std::byte* to) const;  // the tiles from position `first` on, a multiple of 16
  // in_place: the bytes are 64-byte aligned and outlive the state: they are used where they lie, copied as they are written.
  void restore(int n, const std::byte* from, bool in_place);

 private:
  struct Group {
    std::vector<void*> tiles;                        // [capacity / 16]; null: not there
    std::vector<StateMemory::Tile*> owned;           // null: not there, or in place
    int first = 0;                                   // tiles before were dropped
    int reserved = 0;
  };
  void put(int group, int tile, StateMemory::Tile* owned, void* data);
  void* writable(int group, int tile);

  StateMemory& memory_;
  int capacity_ = 0;
  Group groups_[StateMemory::kGroups];
  std::vector<KvLayer> layers_;
};

// The rows of one forward pass: for each its token, position and sequence. Rows of one sequence are beside each other, in
// rising positions.
struct Batch {
  std::span<const int32_t> ids;
  std::span<const int32_t> positions;
  std::span<State* const> states;                    // one a row
  std::vector<AttentionRow>& scratch;                // reused from step to step

  void prepare() const;                              // the states, for what is evaluated
  // The rows of one layer; `window` > 0: a query sees itself and the window - 1 positions before.
  std::span<const AttentionRow> rows(int layer, int window) const;
  int64_t size() const { return int64_t(ids.size()); }
};

}  // namespace tealight::nn
