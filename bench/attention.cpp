#include "bench/attention.h"

namespace tealight::bench {

void attention(const kernels::Table& t, const Memory& memory, const double peak[2], const Report& report) {
  for (int d : {64, 128})
    for (int heads : {1, 3, 4, 8}) {
      constexpr int kDepth = 2048;
      const size_t tile = size_t(16 * d) * 2 * 2, each = kDepth / 16 * tile, pairs = kMemory / each;
      float *q = aligned<float>(size_t(heads * d)), *out = aligned<float>(size_t(heads * d)), *scratch = aligned<float>(size_t(heads) * kDepth);
      for (int p : {0, 1}) {
        const uint8_t* kv = memory.pages[p];
        const double s = best([&] {
          for (size_t i = 0; i < pairs; i++)
            t.attention({q, size_t(d), kv + i * each, kv + i * each + tile / 2, tile, Dtype::f16, heads, d, d, 0, kDepth, 0.1f, 0, out, size_t(d), scratch});
        }, 0.2);
        const std::string what = "d " + std::to_string(d) + " heads " + std::to_string(heads) + " " + kPages[p];
        report.row("attention", t.isa, "F16", what, double(each * pairs) / s * 1e-9, "GB/s", peak[p]);
      }
      std::free(q), std::free(out), std::free(scratch);
    }
}

}  // namespace tealight::bench
