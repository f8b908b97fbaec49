#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/widen_rare.h"
#include "src/io/gguf.h"
#include "src/io/safetensors.h"
#include "tests/fixtures.h"

using namespace tealight;
using namespace tealight::kernels;

namespace {
struct Rare {
  Dtype type;
  void (*widen)(const void*, float*, size_t);
};
constexpr Rare kRare[] = {
    {Dtype::iq1_s, widen_iq1_s},     {Dtype::iq1_m, widen_iq1_m}, {Dtype::iq2_xxs, widen_iq2_xxs}, {Dtype::iq2_xs, widen_iq2_xs},
    {Dtype::iq2_s, widen_iq2_s},     {Dtype::iq3_xxs, widen_iq3_xxs}, {Dtype::iq3_s, widen_iq3_s}, {Dtype::tq1_0, widen_tq1_0},
    {Dtype::tq2_0, widen_tq2_0},     {Dtype::mxfp4, widen_mxfp4}, {Dtype::nvfp4, widen_nvfp4},
};
}  // namespace

TEST_CASE("rare types: random valid blocks have exactly the values of the format's own reader") {
  for (const Rare& r : kRare) {
    INFO(name(r.type));
    std::string base = fixture("formats/gguf_quants") + "/" + name(r.type);
    Gguf g = Gguf::open(base + ".gguf");
    Safetensors s = Safetensors::open(base + ".expected.safetensors");
    int compared = 0;
    for (auto [blocks, values] : {std::pair("blocks", "dequantized"), {"quantized_input", "quantized_input_dequantized"}}) {
      const WeightView *w = g.weights().find(blocks), *e = s.weights.find(values);
      if (!w) continue;
      REQUIRE(e);
      CHECK(w->dtype == r.type);
      REQUIRE(e->elements() == w->elements());
      std::vector<float> got(w->elements());
      r.widen(w->data, got.data(), got.size());
      CHECK(std::memcmp(got.data(), e->data, e->bytes) == 0);
      compared++;
    }
    CHECK(compared > 0);
  }
}

TEST_CASE("rare types: any bytes are read without touching a byte outside, infinite and NaN scales included") {
  for (const Rare& r : kRare)
    for (int fill : {0x00, 0xff, 0x7c, 0x55, 0xfe}) {
      size_t block = size_t(info(r.type).block), bytes = size_t(info(r.type).bytes);
      // On the heap, exactly as large as needed and off any alignment, so that a sanitizer sees a step outside.
      std::vector<uint8_t> src(2 * bytes + 1, uint8_t(fill));
      std::vector<float> dst(2 * block);
      r.widen(src.data() + 1, dst.data(), dst.size());
      for (size_t i = 0; i < block; i++) CHECK(std::memcmp(&dst[i], &dst[block + i], 4) == 0);
      if (fill == 0 && r.type != Dtype::mxfp4)
        for (float v : dst) CHECK(v == 0.0f);
    }
}
