// Attention of the CPU backend over the states of sequences: whatever is computed together and by however many threads, a row's
// result is the same; snapshots and rewinding; what quantized caches cost in accuracy.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "src/base/error.h"
#include "src/nn/state.h"
#include "src/tensor/cpu_backend.h"
#include "src/tensor/ops.h"

using namespace tealight;

namespace {

constexpr Dtype kTypes[] = {Dtype::f32, Dtype::f16, Dtype::q8_0, Dtype::q4_0};

struct Shape4 {
  int heads, kv_heads, d, dv;
};

// One layer, and seeded q, k, v of every position of a sequence.
struct Layer {
  Layer(int threads, Shape4 s, Dtype dtype) : backend(kernels::table(best()), threads, true), shape(s), type(dtype) {}
  static kernels::Isa best() {
    kernels::Isa isa = kernels::Isa::ref;
    for (int i = 0; i < kernels::kIsas - 1; i++)     // i8mm shares neon's
      if (kernels::isa_supported(kernels::Isa(i))) isa = kernels::Isa(i);
    return isa;
  }
  std::unique_ptr<nn::State> state(int capacity) {
    if (!memory) {
      const nn::StateMemory::LayerSpec specs[] = {{shape.kv_heads, shape.d, shape.dv}, {1, 32, 32}};
      memory.emplace(backend, specs, type, 0);
    }
    return std::make_unique<nn::State>(*memory, capacity);
  }
  static void fill(const Tensor& t, int row, int sequence, int position, int what) {
    std::mt19937 rng(unsigned(sequence * 1000003 + position * 3 + what));
    std::normal_distribution<float> normal;
    const int64_t n = t.elements() / t.dim(0);
    for (int64_t i = 0; i < n; i++) t.data()[row * n + i] = normal(rng);
  }
  struct Row {
    nn::State* state;
    int sequence, position;
  };
  std::vector<std::vector<float>> eval(const std::vector<Row>& rows, int window = 0) {
    const int64_t n = int64_t(rows.size());
    Tensor q = Tensor::empty(backend, {n, shape.heads, shape.d}), k = Tensor::empty(backend, {n, shape.kv_heads, shape.d});
    Tensor v = Tensor::empty(backend, {n, shape.kv_heads, shape.dv});
    std::vector<AttentionRow> r;
    for (int i = 0; i < int(n); i++) {
      const auto [state, sequence, position] = rows[size_t(i)];
      state->prepare(position, position + 1);
      fill(q, i, sequence, position, 0), fill(k, i, sequence, position, 1), fill(v, i, sequence, position, 2);
      r.push_back({&state->layer(0), position, window ? std::max(0, position - window + 1) : 0});
    }
    AttentionSpec spec;
    spec.heads = shape.heads, spec.kv_heads = shape.kv_heads, spec.d = shape.d, spec.dv = shape.dv, spec.scale = 1 / std::sqrt(float(shape.d));
    const Tensor out = attention(spec, q, k, v, r);
    std::vector<std::vector<float>> results;
    for (int64_t i = 0; i < n; i++) {
      const int64_t m = int64_t(shape.heads) * shape.dv;
      results.emplace_back(out.data() + i * m, out.data() + (i + 1) * m);
    }
    return results;
  }
  // Positions [begin, end) of a sequence, `batch` at a time.
  std::vector<std::vector<float>> run(nn::State& s, int sequence, int begin, int end, int batch, int window = 0) {
    std::vector<std::vector<float>> all;
    for (int p = begin; p < end; p += batch) {
      std::vector<Row> rows;
      for (int i = p; i < std::min(end, p + batch); i++) rows.push_back({&s, sequence, i});
      for (auto& r : eval(rows, window)) all.push_back(std::move(r));
    }
    return all;
  }

  CpuBackend backend;
  std::optional<nn::StateMemory> memory;
  Shape4 shape;
  Dtype type;
};

}  // namespace

TEST_CASE("attention: one result, one by one, as a prompt and beside others, with any number of threads") {
  for (Dtype type : kTypes)
    for (Shape4 s : {Shape4{9, 3, 64, 64}, {4, 1, 96, 32}, {2, 2, 32, 64}}) {
      Layer one(1, s, type);
      constexpr int n = 120;
      auto base = one.state(n);
      for (int window : {0, 21}) {
        const auto want = one.run(*base, 1, 0, n, 1, window);
        for (int threads : {1, 3})
          for (int batch : {7, n}) {
            Layer l(threads, s, type);
            auto a = l.state(n);
            CHECK_MESSAGE(l.run(*a, 1, 0, n, batch, window) == want, name(type) << " heads " << s.heads << " threads " << threads << " batch " << batch);
          }
      }
      // Sequences of different lengths in one batch: two rows of the second, one of each other.
      const auto want = one.run(*base, 1, 0, n, n);
      Layer l(2, s, type);
      std::vector<std::unique_ptr<nn::State>> states;
      std::vector<Layer::Row> rows;
      for (int i = 0; i < 6; i++) {
        states.push_back(l.state(n));
        const int length = i * 22;
        l.run(*states.back(), 1, 0, length, n);
        rows.push_back({states.back().get(), 1, length});
        if (i == 1) rows.push_back({states.back().get(), 1, length + 1});
      }
      const auto got = l.eval(rows);
      for (size_t i = 0; i < rows.size(); i++) CHECK(got[i] == want[size_t(rows[i].position)]);
    }
}

TEST_CASE("attention: snapshots and rewinding, for every type of cache") {
  for (Dtype type : kTypes) {
    Layer l(2, {3, 1, 64, 32}, type);
    auto a = l.state(100), b = l.state(100);
    const auto want = l.run(*a, 1, 0, 90, 90);
    for (int n : {16, 37, 50}) {
      std::vector<std::byte> snapshot(size_t(a->snapshot_bytes(n))), again(snapshot.size());
      a->save(0, n, snapshot.data());
      b->restore(n, snapshot.data(), false);
      b->save(0, n, again.data());
      CHECK(snapshot == again);      // what lies beyond position n is zero in both
      // Another continuation, then back to n: nothing of it is left.
      l.run(*b, 2, n, 80, 5);
      b->save(0, n, again.data());
      CHECK(snapshot == again);
      CHECK(l.run(*b, 1, n, 90, 7) == std::vector(want.begin() + n, want.end()));
    }
  }
}

TEST_CASE("attention: error of a quantized cache") {
  std::vector<std::vector<float>> want;
  for (Dtype type : kTypes) {
    Layer l(2, {4, 2, 64, 64}, type);
    auto a = l.state(200);
    const auto got = l.run(*a, 1, 0, 200, 50);
    if (want.empty()) want = got;
    double error = 0, size = 0;
    for (size_t i = 0; i < want.size(); i++)
      for (size_t j = 0; j < want[i].size(); j++) {
        error += std::pow(double(got[i][j]) - double(want[i][j]), 2);
        size += std::pow(double(want[i][j]), 2);
      }
    const double relative = std::sqrt(error / size), most = type == Dtype::f32 ? 0 : type == Dtype::f16 ? 1e-3 : type == Dtype::q8_0 ? 0.02 : 0.25;
    INFO(name(type) << ": " << relative);
    CHECK(relative <= most);
    if (type == Dtype::q4_0) CHECK(relative > 0.01);   // it is in use
  }
}
