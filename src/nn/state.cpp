#include "src/nn/state.h"

#include <algorithm>
#include <sys/mman.h>

#include "src/base/checked.h"
#include "src/base/error.h"

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

State::State(std::span<const LayerSpec> layers, Dtype dtype, int capacity) : capacity_(rounded(capacity)) {
  bytes_ = size_t(std::max<uint64_t>(bytes_needed(layers, dtype, capacity), 1));
  memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED) {
    memory_ = nullptr;
    fail(Code::memory, "no address space for a cache of ", capacity_, " positions (", bytes_, " bytes)");
  }
  char* at = static_cast<char*>(memory_);
  for (const LayerSpec& l : layers) {
    KvLayer kv{dtype, l.kv_heads, l.d, l.dv, capacity_, at, nullptr};
    at += array_bytes(l.kv_heads, l.d, capacity_, dtype);
    kv.v = at;
    at += array_bytes(l.kv_heads, l.dv, capacity_, dtype);
    layers_.push_back(kv);
  }
}

State::~State() {
  if (memory_) munmap(memory_, bytes_);
}

std::span<const AttentionRow> Batch::rows(int layer, int window) const {
  scratch.resize(ids.size());
  for (size_t i = 0; i < ids.size(); i++)
    scratch[i] = {&states[i]->layer(layer), positions[i], window > 0 ? std::max(0, positions[i] - window + 1) : 0};
  return scratch;
}

}  // namespace tealight::nn
