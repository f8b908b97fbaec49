#include "src/nn/state.h"

#include <algorithm>
#include <cstring>

#include "src/base/checked.h"
#include "src/base/error.h"

namespace tealight::nn {
namespace {

int64_t tiles_of(int64_t positions) { return (std::max<int64_t>(positions, 1) + 15) / 16; }

// K, or V, of 16 positions of one layer.
uint64_t part_bytes(int heads, int width, Dtype dtype) { return uint64_t(heads) * 16 * row_bytes(dtype, size_t(width)); }

}  // namespace

StateMemory::StateMemory(Backend& device, std::span<const LayerSpec> layers, Dtype dtype, int longest_pass) : device_(device), dtype_(dtype) {
  for (const LayerSpec& l : layers) {
    const int i = l.window > 0;          // also where all positions are kept: snapshots are the same
    Group& g = groups_[i];
    const uint64_t k = part_bytes(l.kv_heads, l.d, dtype), v = part_bytes(l.kv_heads, l.dv, dtype);
    layers_.push_back({{dtype, l.kv_heads, l.d, l.dv, 0, nullptr, size_t(g.bytes), size_t(g.bytes + k)}, i});
    g.bytes += align_up(k + v, 64);
    if (longest_pass > 0) g.window = std::max(g.window, l.window);
  }
  // What a pass writes and sees, and parts of a tile at both ends.
  if (Group& g = groups_[1]; g.window) g.most = int(std::min<int64_t>((int64_t(g.window) + kRewind + longest_pass) / 16 + 2, INT32_MAX / 16));
}

int StateMemory::Group::tiles_for(int64_t positions) const {
  if (!bytes) return 0;
  const int64_t n = tiles_of(positions);
  return int(most ? std::min<int64_t>(n, most) : n);
}

int StateMemory::Group::first_needed(int position) const { return window ? std::max(0, position - window + 1) / 16 : 0; }

uint64_t StateMemory::bytes_needed(int64_t positions) const {
  uint64_t sum = 0;
  for (const Group& g : groups_) sum += g.bytes * uint64_t(g.tiles_for(positions));
  return sum;
}

int64_t StateMemory::positions_in(uint64_t bytes) const {
  const auto tiles = [](uint64_t room, uint64_t each) { return int64_t(std::min<uint64_t>(room / std::max<uint64_t>(each, 1), INT32_MAX / 16)); };
  const int64_t all = tiles(bytes, tile_bytes());
  const Group &wide = groups_[0], &windowed = groups_[1];
  if (!windowed.most || all <= windowed.most) return all * 16;
  return tiles(bytes - windowed.bytes * uint64_t(windowed.most), wide.bytes) * 16;
}

void StateMemory::reserve(Group& g, int tiles) {
  g.reserved += tiles;
  const int n = g.reserved - g.made;
  if (n <= 0) return;
  try {
    g.slabs.push_back(Tensor::empty(device_, {int64_t(uint64_t(n) * g.bytes)}, Dtype::u8));
  } catch (...) {
    g.reserved -= tiles;
    throw;
  }
  g.tiles.push_back(std::make_unique<Tile[]>(size_t(n)));
  char* data = g.slabs.back().data<char>();
  for (int i = n - 1; i >= 0; i--) {                 // the first is taken first
    g.tiles.back()[size_t(i)] = {data + size_t(i) * g.bytes, 0, g.free};
    g.free = &g.tiles.back()[size_t(i)];
  }
  g.made += n;
}

StateMemory::Tile* StateMemory::take(Group& g) {
  Tile* t = g.free;
  TEALIGHT_CHECK(t != nullptr);
  g.free = t->next;
  t->users = 1;
  return t;
}

void StateMemory::drop(Group& g, Tile* t) {
  if (!t || --t->users > 0) return;
  t->next = g.free;
  g.free = t;
}

State::State(StateMemory& memory, int capacity) : memory_(memory), capacity_(int(tiles_of(capacity)) * 16) {
  for (int i = 0; i < StateMemory::kGroups; i++) {
    StateMemory::Group& g = memory_.groups_[i];
    if (!g.bytes) continue;
    groups_[i].tiles.resize(size_t(capacity_) / 16);
    groups_[i].owned.resize(size_t(capacity_) / 16);
  }
  for (const StateMemory::Layer& l : memory_.layers_) {
    layers_.push_back(l.kv);
    layers_.back().capacity = capacity_;
    layers_.back().tiles = groups_[l.group].tiles.data();
  }
  try {
    for (int i = 0; i < StateMemory::kGroups; i++) {
      const int n = memory_.groups_[i].tiles_for(capacity_);
      memory_.reserve(memory_.groups_[i], n);
      groups_[i].reserved = n;
    }
  } catch (...) {
    for (int i = 0; i < StateMemory::kGroups; i++) memory_.groups_[i].reserved -= groups_[i].reserved;
    throw;
  }
}

State::~State() {
  for (int i = 0; i < StateMemory::kGroups; i++) {
    for (StateMemory::Tile* t : groups_[i].owned) StateMemory::drop(memory_.groups_[i], t);
    memory_.groups_[i].reserved -= groups_[i].reserved;
  }
}

void State::put(int group, int tile, StateMemory::Tile* owned, void* data) {
  Group& g = groups_[group];
  StateMemory::drop(memory_.groups_[group], g.owned[size_t(tile)]);
  g.owned[size_t(tile)] = owned;
  g.tiles[size_t(tile)] = data;
}

void* State::writable(int group, int tile) {
  const StateMemory::Tile* owned = groups_[group].owned[size_t(tile)];
  if (owned && owned->users == 1) return owned->data;
  StateMemory::Group& memory = memory_.groups_[group];
  StateMemory::Tile* t = memory_.take(memory);
  if (owned) memory_.device_.copy_bytes(owned->data, t->data, size_t(memory.bytes));
  else if (const void* in_place = groups_[group].tiles[size_t(tile)]) memory_.device_.upload(in_place, t->data, size_t(memory.bytes));
  put(group, tile, t, t->data);
  return t->data;
}

void State::prepare(int begin, int end) {
  TEALIGHT_CHECK(begin >= 0 && begin < end && end <= capacity_);
  for (int i = 0; i < StateMemory::kGroups; i++) {
    Group& g = groups_[i];
    const StateMemory::Group& memory = memory_.groups_[i];
    if (!memory.bytes) continue;
    // From the beginning anew, where what a query here sees has been dropped.
    if (!holds(begin)) {
      for (int t = g.first; t < int(g.tiles.size()); t++) put(i, t, nullptr, nullptr);
      g.first = begin / 16;
    }
    for (const int from = memory.first_needed(begin - StateMemory::kRewind); g.first < from; g.first++) put(i, g.first, nullptr, nullptr);
    for (int t = begin / 16; t <= (end - 1) / 16; t++) writable(i, t);
  }
}

bool State::holds(int position) const {
  for (int i = 0; i < StateMemory::kGroups; i++)
    if (groups_[i].first > memory_.groups_[i].first_needed(position)) return false;
  return true;
}

bool State::complete() const { return groups_[0].first == 0 && groups_[1].first == 0; }

void State::share(const State& from, int n) {
  TEALIGHT_CHECK(&memory_ == &from.memory_ && this != &from && n <= capacity_ && n <= from.capacity_ && from.holds(n));
  for (int i = 0; i < StateMemory::kGroups; i++) {
    if (!memory_.groups_[i].bytes) continue;
    const Group& g = from.groups_[i];
    for (int t = 0; t < int(groups_[i].tiles.size()); t++) {
      const bool shared = t >= g.first && t < (n + 15) / 16;
      if (shared && g.owned[size_t(t)]) g.owned[size_t(t)]->users++;
      put(i, t, shared ? g.owned[size_t(t)] : nullptr, shared ? g.tiles[size_t(t)] : nullptr);
    }
    groups_[i].first = g.first;
  }
}

void State::save(int first, int n, std::byte* to) const {
  TEALIGHT_CHECK(complete());
  for (int t = first / 16; t < (n + 15) / 16; t++)
    for (int i = 0; i < StateMemory::kGroups; to += memory_.groups_[i++].bytes)
      if (const uint64_t bytes = memory_.groups_[i].bytes) memory_.device_.download(groups_[i].tiles[size_t(t)], to, size_t(bytes));
  if (n % 16 == 0) return;
  std::byte* tile = to - memory_.tile_bytes();
  // What each position has `each` bytes of, 16 beside each other.
  const size_t used = size_t(n % 16);
  const auto clear = [&](std::byte*& at, size_t each) {
    std::memset(at + used * each, 0, (16 - used) * each);
    at += 16 * each;
  };
  for (const StateMemory::Layer& layer : memory_.layers_) {
    const KvLayer& l = layer.kv;
    std::byte* begin = tile + (layer.group ? memory_.groups_[0].bytes : 0);
    std::byte *k = begin + l.k, *v = begin + l.v;
    const size_t d = size_t(l.d), dv = size_t(l.dv);
    const bool quantized = is_quantized(l.dtype);
    const size_t scales = quantized ? d / 32 : 0, v_scales = quantized ? dv / 32 * 2 : 0;
    const size_t code = quantized ? 1 : size_t(info(l.dtype).bytes), n_codes = (row_bytes(l.dtype, d) - scales * 2) / code;
    for (int h = 0; h < l.kv_heads; h++) {
      for (size_t i = 0; i < n_codes; i++) clear(k, code);
      for (size_t i = 0; i < scales; i++) clear(k, 2);
      clear(v, row_bytes(l.dtype, dv) - v_scales);
      clear(v, v_scales);
    }
  }
}

void State::restore(int n, const std::byte* from, bool in_place) {
  TEALIGHT_CHECK(n <= capacity_);
  for (int i = 0; i < StateMemory::kGroups; from += memory_.groups_[i++].bytes) {
    const StateMemory::Group& memory = memory_.groups_[i];
    if (!memory.bytes) continue;
    Group& g = groups_[i];
    for (int t = 0; t < int(g.tiles.size()); t++) put(i, t, nullptr, nullptr);
    g.first = in_place ? 0 : memory.first_needed(n - StateMemory::kRewind);
    for (int t = g.first; t < (n + 15) / 16; t++) {
      const std::byte* tile = from + uint64_t(t) * memory_.tile_bytes();
      if (in_place) put(i, t, nullptr, const_cast<std::byte*>(tile));   // writable() copies it first
      else memory_.device_.upload(tile, writable(i, t), size_t(memory.bytes));
    }
  }
}

void Batch::prepare() const {
  for (size_t i = 0, end; i < states.size(); i = end) {
    for (end = i + 1; end < states.size() && states[end] == states[i];) end++;
    states[i]->prepare(positions[i], positions[end - 1] + 1);
  }
}

std::span<const AttentionRow> Batch::rows(int layer, int window) const {
  scratch.resize(ids.size());
  for (size_t i = 0; i < ids.size(); i++)
    scratch[i] = {&states[i]->layer(layer), positions[i], window > 0 ? std::max(0, positions[i] - window + 1) : 0};
  return scratch;
}

}  // namespace tealight::nn
