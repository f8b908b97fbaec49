#include "src/nn/state.h"

#include <algorithm>
#include <cstring>

#include "src/base/checked.h"
#include "src/base/error.h"

namespace tealight::nn {
namespace {

int rounded(int capacity) { return int(align_up(uint64_t(std::max(capacity, 1)), 16)); }

// K, or V, of 16 positions of one layer.
uint64_t part_bytes(int heads, int width, Dtype dtype) { return uint64_t(heads) * 16 * row_bytes(dtype, size_t(width)); }

uint64_t layer_bytes(const State::LayerSpec& l, Dtype dtype) {
  return align_up(part_bytes(l.kv_heads, l.d, dtype) + part_bytes(l.kv_heads, l.dv, dtype), 64);
}

}  // namespace

uint64_t State::bytes_needed(std::span<const LayerSpec> layers, Dtype dtype, int positions) {
  uint64_t tile = 0;
  for (const LayerSpec& l : layers) tile += layer_bytes(l, dtype);
  return tile * uint64_t(rounded(positions) / 16);
}

State::State(Backend& device, std::span<const LayerSpec> layers, Dtype dtype, int capacity)
    : capacity_(rounded(capacity)), tile_bytes_(bytes_needed(layers, dtype, 16)) {
  memory_ = Tensor::empty(device, {int64_t(bytes_needed(layers, dtype, capacity) + 2 * kAlignment)}, Dtype::u8);
  begin_ = reinterpret_cast<char*>(align_up(reinterpret_cast<uintptr_t>(memory_.data<char>()), kAlignment));
  char* at = begin_;
  for (const LayerSpec& l : layers) {
    layers_.push_back({dtype, l.kv_heads, l.d, l.dv, capacity_, size_t(tile_bytes_), at, at + part_bytes(l.kv_heads, l.d, dtype)});
    at += layer_bytes(l, dtype);
  }
}

void State::save(int first, int n, std::byte* to) const {
  const uint64_t before = snapshot_bytes(first), bytes = snapshot_bytes(n) - before;
  memory_.device().download(begin_ + before, to, size_t(bytes));
  if (n % 16 == 0) return;
  std::byte* tile = to + bytes - tile_bytes_;
  // What each position has `each` bytes of, 16 beside each other.
  const size_t used = size_t(n % 16);
  const auto clear = [&](std::byte*& at, size_t each) {
    std::memset(at + used * each, 0, (16 - used) * each);
    at += 16 * each;
  };
  for (const KvLayer& l : layers_) {
    std::byte* k = tile + (static_cast<char*>(l.k) - begin_);
    std::byte* v = tile + (static_cast<char*>(l.v) - begin_);
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

void State::restore(int n, const std::byte* from) {
  TEALIGHT_CHECK(n <= capacity_);
  memory_.device().upload(from, begin_, size_t(snapshot_bytes(n)));
  length = n;
}

void State::restore_mapped(int n, const std::byte* from, int fd, uint64_t offset) {
  TEALIGHT_CHECK(n <= capacity_);
  if (!memory_.device().map_private(begin_, fd, offset, size_t(snapshot_bytes(n)))) return restore(n, from);
  length = n;
}

std::span<const AttentionRow> Batch::rows(int layer, int window) const {
  scratch.resize(ids.size());
  for (size_t i = 0; i < ids.size(); i++)
    scratch[i] = {&states[i]->layer(layer), positions[i], window > 0 ? std::max(0, positions[i] - window + 1) : 0};
  return scratch;
}

}  // namespace tealight::nn
