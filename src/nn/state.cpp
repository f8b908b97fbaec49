#include "src/nn/state.h"

#include <algorithm>

#include "src/base/checked.h"

namespace tealight::nn {
namespace {

int rounded(int capacity) { return int(align_up(uint64_t(std::max(capacity, 1)), 16)); }

// Each array starts on a cache line.
uint64_t array_bytes(int heads, int width, int capacity, Dtype dtype) {
  return align_up(uint64_t(heads) * uint64_t(width) * uint64_t(capacity) * uint64_t(info(dtype).bytes), 64);
}

}  // namespace

uint64_t State::bytes_needed(std::span<const LayerSpec> layers, Dtype dtype, int capacity) {
  uint64_t n = 0;
  for (const LayerSpec& l : layers)
    n += array_bytes(l.kv_heads, l.d, rounded(capacity), dtype) + array_bytes(l.kv_heads, l.dv, rounded(capacity), dtype);
  return n;
}

State::State(Backend& device, std::span<const LayerSpec> layers, Dtype dtype, int capacity) : capacity_(rounded(capacity)) {
  memory_ = Tensor::empty(device, {int64_t(bytes_needed(layers, dtype, capacity))}, Dtype::u8);
  char* at = memory_.data<char>();
  for (const LayerSpec& l : layers) {
    KvLayer kv{dtype, l.kv_heads, l.d, l.dv, capacity_, at, nullptr};
    at += array_bytes(l.kv_heads, l.d, capacity_, dtype);
    kv.v = at;
    at += array_bytes(l.kv_heads, l.dv, capacity_, dtype);
    layers_.push_back(kv);
  }
}

std::span<const AttentionRow> Batch::rows(int layer, int window) const {
  scratch.resize(ids.size());
  for (size_t i = 0; i < ids.size(); i++)
    scratch[i] = {&states[i]->layer(layer), positions[i], window > 0 ? std::max(0, positions[i] - window + 1) : 0};
  return scratch;
}

}  // namespace tealight::nn
