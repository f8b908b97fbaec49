// Speed of the kernels, one thread: decode as GB/s of weights next to a plain read loop, prefill as Gop/s (two operations a
// multiply-add), for every type and instruction set that runs here.
//   bench_kernels [decode|prefill|attention|row|all] [TYPE]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif

#include "kernels/kernels.h"

using namespace tealight;
using namespace tealight::kernels;

namespace {

// Processor time of this thread, so that other work on the machine does not count.
double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

// Seconds of the fastest of several calls, for at least `total` seconds.
template <class F>
double best(F f, double total = 0.4) {
  double fastest = 1e30;
  const double end = now() + total;
  int runs = 0;
  do {
    const double t = now();
    f();
    fastest = std::min(fastest, now() - t);
  } while (++runs < 3 || now() < end);
  return fastest;
}

template <class T>
T* aligned(size_t n) {
  void* p = std::aligned_alloc(64, (n * sizeof(T) + 127) / 64 * 64);
  std::memset(p, 0, n * sizeof(T));
  return static_cast<T*>(p);
}

uint32_t state = 1;
uint32_t next() { return state = state * 1664525 + 1013904223; }

// Bytes that make small finite numbers whatever the type.
void fill(uint8_t* p, size_t n) {
  for (size_t i = 0; i < n; i++) p[i] = uint8_t(next() >> 24 & 0x3b);
}

std::vector<const Table*> sets() {
  std::vector<const Table*> t;
  for (int i = 0; i < kIsas; i++)
    if (isa_supported(Isa(i))) t.push_back(&table(Isa(i)));
  return t;
}

constexpr size_t kMemory = size_t(256) << 20;  // weights rotate over this much, so that they come from memory

double read_speed(const uint8_t* p) {
  uint64_t sum = 0;
  const double s = best([&] {
    uint64_t a[8] = {};
    for (size_t i = 0; i < kMemory; i += 64) {
      __builtin_prefetch(p + i + 1024);
      uint64_t v[8];
      std::memcpy(v, p + i, 64);
      for (int j = 0; j < 8; j++) a[j] |= v[j];
    }
    for (uint64_t v : a) sum += v;
  });
  static volatile uint64_t keep;
  keep = sum;
  (void)keep;
  return double(kMemory) / s * 1e-9;
}

void decode(const Table& t, Dtype type, const uint8_t* memory) {
  const double read = read_speed(memory);
  constexpr int K = 2048, N = 4096;
  const size_t bytes = size_t(N) * row_bytes(type, K), matrices = kMemory / bytes;
  float *x = aligned<float>(K), *y = aligned<float>(N);
  for (int i = 0; i < K; i++) x[i] = float(next() >> 8) * 0x1p-24f - 0.5f;
  auto* scratch = aligned<uint8_t>(matmul_scratch_bytes(K, 1));
  const Family family = info(type).family;
  // Integer products from plain rows, and from groups of 16 that take `row` bytes a row.
  const auto integers = [&](Table::MatmulInt f, size_t row, const char* layout) {
    if (!f) return;
    auto* act = aligned<uint8_t>(act_bytes(family, 1, K));
    t.quantize(family, x, K, 1, K, act);
    const size_t each = size_t(N) * row, count = kMemory / each;
    const double s = best([&] {
      for (size_t i = 0; i < count; i++) f(memory + i * each, K, act, 1, y, N, 0, N, scratch);
    });
    const double speed = double(each * count) / s * 1e-9;
    constexpr int kNear = 64;  // rows that stay in the cache
    const double near = double(kNear * row) / best([&] { f(memory, K, act, 1, y, N, 0, kNear, scratch); }, 0.05) * 1e-9;
    std::printf("decode   %-7s %-8s %-5s %6.1f GB/s  %3.0f%% of the read loop (%.1f from cache)\n", t.isa, name(type), layout, speed, 100 * speed / read, near);
    std::free(act);
  };
  integers(t.matmul_int[int(type)], row_bytes(type, K), "int");
  integers(t.matmul_x16[int(type)], x16_row_bytes(type, K), "x16");
  if (t.matmul_float[int(type)]) {
    const double s = best([&] {
      for (size_t i = 0; i < matrices; i++)
        t.matmul_float[int(type)](memory + i * bytes, row_bytes(type, K), K, x, K, 1, y, N, 0, N, scratch);
    }, 0.1);
    const double speed = double(bytes * matrices) / s * 1e-9;
    std::printf("decode   %-7s %-8s float %6.1f GB/s  %3.0f%% of the read loop\n", t.isa, name(type), speed, 100 * speed / read);
  }
  std::free(x), std::free(y), std::free(scratch);
}

void prefill(const Table& t, Dtype type, const uint8_t* memory) {
  constexpr int K = 2048, N = 512;
  const Family family = info(type).family;
  auto* scratch = aligned<uint8_t>(matmul_scratch_bytes(K, 512));
  for (int T : {4, 8, 16, 128, 512}) {
    float *x = aligned<float>(size_t(K) * size_t(T)), *y = aligned<float>(size_t(N + 16) * size_t(T));
    for (size_t i = 0; i < size_t(K) * size_t(T); i++) x[i] = float(next() >> 8) * 0x1p-24f - 0.5f;
    const double ops = 2.0 * K * N * T * 1e-9;
    std::printf("prefill  %-7s %-8s T %3d", t.isa, name(type), T);
    if (t.matmul_int[int(type)]) {
      auto* act = aligned<uint8_t>(act_bytes(family, T, K));
      const double quantizing = best([&] { t.quantize(family, x, K, T, K, act); }, 0.02);
      const auto speed = [&](Table::MatmulInt f) { return ops / best([&] { f(memory, K, act, T, y, N + 16, 0, N, scratch); }, 0.1); };
      std::printf("  int %6.1f  x16 %6.1f Gop/s (quantize %.2f ns a value)", speed(t.matmul_int[int(type)]), speed(t.matmul_x16[int(type)]),
                  quantizing * 1e9 / (double(K) * T));
      std::free(act);
    }
    if (t.matmul_float[int(type)])
      std::printf("  float %6.1f Gop/s",
                  ops / best([&] { t.matmul_float[int(type)](memory, row_bytes(type, K), K, x, K, T, y, N + 16, 0, N, scratch); }, 0.1));
    std::printf("\n");
    std::free(x), std::free(y);
  }
  std::free(scratch);
}

// Gflop/s of multiply-adds in registers, with 8 lanes (AVX2) or 4.
#if defined(__x86_64__)
__attribute__((target("avx2,fma")))
#endif
double fma_peak() {
  constexpr int n = 1000000;
#if defined(__x86_64__)
  using V = __m256;
#define TL_FMA _mm256_fmadd_ps
#define TL_KEEP(v) __asm__ volatile("" : "+x"(v))
#else
  using V = float32x4_t;
#define TL_FMA vfmaq_f32
#define TL_KEEP(v) __asm__ volatile("" : "+w"(v))
#endif
  V a[12];
  const V x = V{} + 1e-9f, y = V{} + 0.5f;
#pragma GCC unroll 12
  for (int j = 0; j < 12; j++) a[j] = x;
  double s = 1e30;
  for (int round = 0; round < 20; round++) {
    const double begin = now();
    for (int i = 0; i < n; i++) {
#pragma GCC unroll 12
      for (int j = 0; j < 12; j++) {
        a[j] = TL_FMA(a[j], y, x);
        TL_KEEP(a[j]);
      }
    }
    s = std::min(s, now() - begin);
  }
  return 2.0 * double(sizeof(V) / 4) * 12 * n / s * 1e-9;
}

// One layer's K/V heads of `tile` bytes in caches of several layers: decode as GB/s of K and V, a prompt as Gflop/s.
void attention(const Table& t, const uint8_t* memory, double read, double peak) {
  const auto run = [&](int d, int heads, int rows, int depth, bool pieces) {
    const int hi = depth + rows;
    const size_t part = size_t(16 * d) * 2, tile = part * 2, each = size_t(hi + 15) / 16 * tile, pairs = kMemory / each;
    float *q = aligned<float>(size_t(rows * heads * d)), *out = aligned<float>(size_t(rows * heads * d));
    float *scores = aligned<float>(attention_score_bytes(rows * heads, (hi + 15) / 16) / 4), *work = aligned<float>(attention_work_bytes(rows * heads, d, d) / 4);
    std::vector<Attention::Row> seen;
    for (int r = 0; r < rows; r++) seen.push_back({0, depth + r + 1});
    for (int i = 0; i < rows * heads * d; i++) q[i] = float(next() >> 8) * 0x1p-24f - 0.5f;
    const auto one = [&](size_t i) {
      const uint8_t* k = memory + i * each;
      Attention a{q, size_t(heads * d), size_t(d), k, k + part, tile, Dtype::f16, rows, heads, d, d, seen.data(), 0.1f, 0, out, size_t(heads * d), size_t(d), scores, work};
      t.attention_scores(a, 0, (hi + 15) / 16);
      t.attention_weights(a, 0, rows * heads);
      t.attention_sum(a, 0, d);
    };
    double s = 0;
    if (!pieces) s = best([&] { for (size_t i = 0; i < pairs; i++) one(i); }) / double(pairs);
    else s = best([&] { for (int i = 0; i < 16; i++) one(0); }, 0.03) / 16;
    double keys = 0;
    for (const auto& r : seen) keys += r.hi;
    const double flops = 4.0 * d * heads * keys / s * 1e-9;
    std::free(q), std::free(out), std::free(scores), std::free(work);
    return pieces ? flops : double(each) / s * 1e-9;
  };
  for (int d : {64, 128, 256})
    for (int heads : {1, 3, 4, 8}) {
      const double speed = run(d, heads, 1, 2047, false);
      std::printf("attention %-7s d %3d heads %d depth 2048: %5.1f GB/s of K and V, %3.0f%% of the read loop\n", t.isa, d, heads, speed, 100 * speed / read);
    }
  for (int d : {64, 128, 256})
    for (int heads : {1, 3, 4, 8}) {
      std::printf("attention %-7s d %3d heads %d", t.isa, d, heads);
      for (int depth : {0, 48, 480, 4000})
        for (int queries : {8, 24, 48}) {
          if (queries % heads) continue;
          std::printf(" | %d at %d: %2.0f%%", queries, depth, 100 * run(d, heads, queries / heads, depth, true) / peak);
        }
      std::printf(" of the peak\n");
    }
}

void rows(const Table& t) {
  constexpr int n = 4096;
  float *x = aligned<float>(n), *w = aligned<float>(n), *y = aligned<float>(n);
  for (int i = 0; i < n; i++) x[i] = float(next() >> 8) * 0x1p-22f - 2, w[i] = 1;
  const auto show = [&](const char* what, auto f) {
    std::printf("row      %-7s %-13s %5.2f ns a value\n", t.isa, what, best([&] { for (int i = 0; i < 20; i++) f(); }, 0.05) * 1e9 / (20.0 * n));
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
  std::free(x), std::free(w), std::free(y);
}

}  // namespace

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "all";
  const char* only = argc > 2 ? argv[2] : nullptr;
  const auto wanted = [&](const char* s) { return !std::strcmp(what, "all") || !std::strcmp(what, s); };
  auto* memory = aligned<uint8_t>(kMemory);
  fill(memory, kMemory);
  const double read = read_speed(memory);
  std::printf("read loop %.1f GB/s\n", read);
  const double peak = fma_peak();
  std::printf("multiply-adds %.1f Gflop/s\n", peak);
  for (const Table* t : sets()) {
    if (argc <= 2 && t->isa == table(Isa::ref).isa && !std::getenv("TEALIGHT_ISA")) continue;  // slow; ask for it
    for (int i = 0; i < kDtypes; i++) {
      if (!t->matmul_float[i] || (only && std::strcmp(only, name(Dtype(i))))) continue;
      if (wanted("decode")) decode(*t, Dtype(i), memory);
      if (wanted("prefill")) prefill(*t, Dtype(i), memory);
    }
    if (wanted("attention")) attention(*t, memory, read, peak);
    if (wanted("row")) rows(*t);
  }
  std::free(memory);
  return 0;
}
