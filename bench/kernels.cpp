// Speed of the kernels, one thread, beside the most that their instruction set can do here: decode as GB/s of weights (read loop on 4 KiB
// and on 2 MiB pages), prefill as Gop/s (two operations a multiply-add; int8 products or float FMA), attention as GB/s of keys and values.
//   bench_kernels [--json] [--quick] [decode|prefill|attention|row|all] [TYPE]      one set only: TEALIGHT_ISA=WORD; ref only so
#include "kernels/kernels.h"

#include <vector>

#include "bench/attention.h"
#include "bench/peaks.h"
#include "bench/timing.h"

namespace tealight::bench {

#define X(isa) extern const PeakLoops peaks_##isa;
PEAK_SETS
#undef X
#define X(isa) &peaks_##isa,
constexpr const PeakLoops* kPeakLoops[] = {PEAK_SETS};
#undef X

namespace {

using namespace kernels;

double time_scale = 1;  // --quick: less

Peaks measure_peaks(const PeakLoops& loops, const Memory& memory) {
  const auto rate = [](double (*f)()) {
    const double operations = f();
    return operations > 0 ? operations / best([&] { f(); }, 0.1) * 1e-9 : 0;
  };
  const auto read = [&](const uint8_t* p) {
    double fastest = 1e30;
    for (size_t ahead : {size_t(0), size_t(1024)})
      fastest = std::min(fastest, best([&] { loops.read(reinterpret_cast<const char*>(p), kMemory, ahead); }, 0.3 * time_scale));
    return double(kMemory) / fastest * 1e-9;
  };
  const double tiles = rate(loops.tiles);   // their set is supported, so the kernel has been asked for them
  return {rate(loops.fma), std::max(rate(loops.int8), tiles), {read(memory.pages[0]), read(memory.pages[1])}};
}

void decode(const Table& t, Dtype type, const Memory& memory, const Peaks& peaks, const Report& report) {
  constexpr int K = 2048, N = 4096, kNear = 64;  // kNear: rows that stay in the cache
  const Family family = info(type).family;
  float *x = aligned<float>(K), *y = aligned<float>(N);
  fill(x, K);
  auto *scratch = aligned<uint8_t>(matmul_scratch_bytes(K, 1)), *act = aligned<uint8_t>(act_bytes(family, 1, K));
  // call(weights, rows), `row` bytes a row, over `bytes` of memory
  const auto show = [&](const char* layout, size_t row, size_t bytes, auto call) {
    const size_t each = size_t(N) * row, count = bytes / each;
    for (int p : {0, 1}) {
      const uint8_t* w = memory.pages[p];
      const double s = best([&] {
        for (size_t i = 0; i < count; i++) call(w + i * each, N);
      }, 0.2 * time_scale);
      report.row("decode", t.isa, name(type), std::string(layout) + " " + kPages[p], double(each * count) / s * 1e-9, "GB/s", peaks.read[p]);
    }
    const double near = best([&] { call(memory.pages[1], kNear); }, 0.05 * time_scale);
    report.row("decode", t.isa, name(type), std::string(layout) + " cached", double(kNear * row) / near * 1e-9, "GB/s", 0);
  };
  const auto integers = [&](Table::MatmulInt f, size_t row, const char* layout) {
    if (f) show(layout, row, kMemory, [&](const uint8_t* w, int rows) { f(w, K, act, 1, y, N, 0, rows, scratch); });
  };
  if (t.matmul_int[int(type)]) t.quantize(family, x, K, 1, K, act);
  integers(t.matmul_int[int(type)], row_bytes(type, K), "int");
  integers(t.matmul_x16[int(type)], x16_row_bytes(type, K), "x16");
  if (const auto f = t.matmul_float[int(type)]) {
    const size_t row = row_bytes(type, K);
    show("float", row, kMemory / 4, [&](const uint8_t* w, int rows) { f(w, row, K, x, K, 1, y, N, 0, rows, scratch); });
  }
  std::free(x), std::free(y), std::free(scratch), std::free(act);
}

void prefill(const Table& t, Dtype type, const Memory& memory, const Peaks& peaks, const Report& report) {
  constexpr int K = 2048, N = 512;
  const Family family = info(type).family;
  const uint8_t* w = memory.pages[1];
  auto* scratch = aligned<uint8_t>(matmul_scratch_bytes(K, 512));
  for (int T : {4, 8, 16, 128, 512}) {
    float *x = aligned<float>(size_t(K) * size_t(T)), *y = aligned<float>(size_t(N + 16) * size_t(T));
    fill(x, size_t(K) * size_t(T));
    auto* act = aligned<uint8_t>(act_bytes(family, T, K));
    const auto show = [&](const char* layout, double peak, auto call) {
      const double operations = 2.0 * K * N * T;
      report.row("prefill", t.isa, name(type), std::string(layout) + " T " + std::to_string(T), operations / best(call, 0.1 * time_scale) * 1e-9, "Gop/s", peak);
    };
    if (t.matmul_int[int(type)]) {
      t.quantize(family, x, K, T, K, act);
      show("int", peaks.int8, [&] { t.matmul_int[int(type)](w, K, act, T, y, N + 16, 0, N, scratch); });
    }
    if (t.matmul_x16[int(type)]) show("x16", peaks.int8, [&] { t.matmul_x16[int(type)](w, K, act, T, y, N + 16, 0, N, scratch); });
    if (t.matmul_float[int(type)])
      show("float", peaks.fma, [&] { t.matmul_float[int(type)](w, row_bytes(type, K), K, x, K, T, y, N + 16, 0, N, scratch); });
    std::free(x), std::free(y), std::free(act);
  }
  std::free(scratch);
}

void rows(const Table& t, const Report& report) {
  constexpr int n = 4096;
  float *x = aligned<float>(n), *w = aligned<float>(n), *y = aligned<float>(n);
  fill(x, n), fill(w, n);
  const auto show = [&](const char* what, auto f) {
    const double s = best([&] { for (int i = 0; i < 20; i++) f(); }, 0.05 * time_scale);
    report.row("row", t.isa, "F32", what, s * 1e9 / (20.0 * n), "ns a value", 0);
  };
  show("rms_norm", [&] { t.rms_norm(x, w, 0, 1e-5f, y, n); });
  show("layer_norm", [&] { t.layer_norm(x, w, w, 1e-5f, y, n); });
  show("rope neox", [&] { t.rope(y, x, w, n, true); });
  show("rope pairs", [&] { t.rope(y, x, w, n, false); });
  show("softmax", [&] { t.softmax(y, n); });
  show("add", [&] { t.add(x, w, y, n); });
  show("silu_mul", [&] { t.silu_mul(x, w, y, n); });
  show("gelu_tanh_mul", [&] { t.gelu_tanh_mul(x, w, y, n); });
  show("gelu_erf_mul", [&] { t.gelu_erf_mul(x, w, y, n); });
  show("softcap", [&] { t.softcap(x, 30, y, n); });
  for (Family family : {Family::block32, Family::block256}) {
    auto* act = aligned<uint8_t>(act_bytes(family, 1, n));
    show(family == Family::block32 ? "quantize 32" : "quantize 256", [&] { t.quantize(family, x, n, 1, n, act); });
    std::free(act);
  }
  std::free(x), std::free(w), std::free(y);
}

Memory make_memory() {
  Memory m;
  for (int p : {0, 1}) {
    void* at = ::mmap(nullptr, kMemory + (size_t(2) << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) std::abort();
    const uintptr_t begin = (uintptr_t(at) + (size_t(2) << 20) - 1) & ~uintptr_t((size_t(2) << 20) - 1);
    m.pages[p] = reinterpret_cast<uint8_t*>(begin);
    ::madvise(m.pages[p], kMemory, p ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (p) std::memcpy(m.pages[1], m.pages[0], kMemory);
    else for (size_t i = 0; i < kMemory; i++) m.pages[0][i] = uint8_t(next() >> 24 & 0x3b);
  }
  return m;
}

// A set runs when asked for by name; ref, which is slow, only then.
bool chosen(const char* isa) {
  const char* forced = std::getenv("TEALIGHT_ISA");
  return forced ? !std::strcmp(forced, isa) : std::strcmp(isa, isa_name(Isa::ref)) != 0;
}

const PeakLoops& loops_of(const char* isa) {
  for (const PeakLoops* loops : kPeakLoops)
    if (!std::strcmp(loops->isa, isa)) return *loops;
  return *kPeakLoops[0];
}

int run(const char* what, const char* only, const Report& report) {
  const auto wanted = [&](const char* s) { return !std::strcmp(what, "all") || !std::strcmp(what, s); };
  const Memory memory = make_memory();
  int sets = 0;
  for (int i = 0; i < kIsas; i++) {
    if (!isa_supported(Isa(i)) || !chosen(isa_name(Isa(i)))) continue;
    sets++;
    const Table& t = table(Isa(i));
    const Peaks peaks = measure_peaks(loops_of(t.isa), memory);
    for (int p : {0, 1}) report.row("peak", t.isa, "", std::string("read ") + kPages[p], peaks.read[p], "GB/s", 0);
    report.row("peak", t.isa, "", "int8", peaks.int8, "Gop/s", 0);
    report.row("peak", t.isa, "", "float FMA", peaks.fma, "Gop/s", 0);
    for (int type = 0; type < kDtypes; type++) {
      if (!t.matmul_float[type] || (only && std::strcmp(only, name(Dtype(type))))) continue;
      if (wanted("decode")) decode(t, Dtype(type), memory, peaks, report);
      if (wanted("prefill")) prefill(t, Dtype(type), memory, peaks, report);
    }
    if (wanted("attention")) attention(t, memory, peaks, report);
    if (wanted("row")) rows(t, report);
  }
  if (sets == 0) return std::fprintf(stderr, "bench_kernels: no such instruction set here\n"), 2;
  return 0;
}

}  // namespace
}  // namespace tealight::bench

int main(int argc, char** argv) {
  using namespace tealight::bench;
  Report report;
  std::vector<const char*> words;
  for (int i = 1; i < argc; i++) {
    if (!std::strcmp(argv[i], "--json")) report.json = true;
    else if (!std::strcmp(argv[i], "--quick")) time_scale = 0.1;
    else words.push_back(argv[i]);
  }
  const char* what = words.empty() ? "all" : words[0];
  bool known = words.size() <= 2;
  if (known) {
    known = false;
    for (const char* w : {"all", "decode", "prefill", "attention", "row"}) known |= !std::strcmp(w, what);
  }
  if (!known) return std::fprintf(stderr, "usage: bench_kernels [--json] [--quick] [decode|prefill|attention|row|all] [TYPE]\n"), 2;
  return run(what, words.size() > 1 ? words[1] : nullptr, report);
}
