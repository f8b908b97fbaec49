// A GGUF file of any bytes: parsing, every look-up of every pair, the bounds of every tensor, widening of the rare types.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/widen_rare.h"
#include "src/base/error.h"
#include "src/io/gguf.h"

using namespace tealight;

namespace {

// What is read goes here, so that no read is optimized away.
volatile uint64_t g_sink = 0;

void touch(const std::byte* data, uint64_t bytes) {
  if (bytes) g_sink = g_sink + uint64_t(data[0]) + uint64_t(data[bytes - 1]);
}

void look_up(const Gguf& g, std::string_view key) {
  auto attempt = [](auto f) {
    try {
      f();
    } catch (const Error&) {   // of another type than asked for
    }
  };
  attempt([&] { g_sink = g_sink + g.uint(key).value_or(0); });
  attempt([&] { g_sink = g_sink + uint64_t(g.number(key).value_or(0) != 0); });
  attempt([&] { g_sink = g_sink + uint64_t(g.boolean(key).value_or(false)); });
  attempt([&] { g_sink = g_sink + g.string(key)->size(); });
  attempt([&] { g_sink = g_sink + g.uints(key)->size(); });
  attempt([&] { g_sink = g_sink + g.numbers(key)->size(); });
  attempt([&] {
    auto strings = g.strings(key);
    for (std::string_view s : *strings) touch(reinterpret_cast<const std::byte*>(s.data()), s.size());
  });
}

void widen(const WeightView& w) {
  void (*f)(const void*, float*, size_t) = nullptr;
  switch (w.dtype) {
    case Dtype::iq1_s: f = kernels::widen_iq1_s; break;
    case Dtype::iq1_m: f = kernels::widen_iq1_m; break;
    case Dtype::iq2_xxs: f = kernels::widen_iq2_xxs; break;
    case Dtype::iq2_xs: f = kernels::widen_iq2_xs; break;
    case Dtype::iq2_s: f = kernels::widen_iq2_s; break;
    case Dtype::iq3_xxs: f = kernels::widen_iq3_xxs; break;
    case Dtype::iq3_s: f = kernels::widen_iq3_s; break;
    case Dtype::tq1_0: f = kernels::widen_tq1_0; break;
    case Dtype::tq2_0: f = kernels::widen_tq2_0; break;
    case Dtype::mxfp4: f = kernels::widen_mxfp4; break;
    case Dtype::nvfp4: f = kernels::widen_nvfp4; break;
    default: return;
  }
  std::vector<float> row(std::min<uint64_t>(w.elements(), 1 << 16) / 256 * 256);
  f(w.data, row.data(), row.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    Gguf g = Gguf::parse(Mapping::from_bytes(std::string(reinterpret_cast<const char*>(data), size)));
    for (const auto& [key, value] : g.metadata()) {
      touch(value.data, value.bytes);
      look_up(g, key);
    }
    for (const WeightView& w : g.weights().all()) {
      touch(w.data, w.bytes);
      if (g.weights().find(w.name) != &w) __builtin_trap();
      if (w.computable) widen(w);
    }
  } catch (const Error&) {
  }
  return 0;
}
