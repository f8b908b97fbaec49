// A safetensors file of any bytes: parsing, the bounds of every tensor, look-up by name.
#include "src/base/error.h"
#include "src/io/safetensors.h"

using namespace tealight;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    static volatile uint64_t sink = 0;
    Safetensors s = Safetensors::parse(Mapping::from_bytes(std::string(reinterpret_cast<const char*>(data), size)));
    for (const auto& [key, text] : s.metadata) sink = sink + key.size() + text.size();
    for (const WeightView& w : s.weights.all()) {
      if (w.bytes) sink = sink + uint64_t(w.data[0]) + uint64_t(w.data[w.bytes - 1]);
      if (w.computable && w.bytes != w.elements() * uint64_t(info(w.dtype).bytes)) __builtin_trap();
      if (s.weights.find(w.name) != &w) __builtin_trap();
    }
  } catch (const Error&) {
  }
  return 0;
}
