// The best rows of a matrix are those of the full product, bit by bit, whatever the coarse copy looks like.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cpu/x16.h"
#include "src/base/error.h"
#include "src/tensor/ops.h"
#include "src/tensor/row_search.h"

using namespace tealight;

namespace {

constexpr int kRows = 8000 + 5;              // the last group is not whole

struct Bytes {
  explicit Bytes(size_t n) : data(static_cast<std::byte*>(std::aligned_alloc(64, (n + 63) / 64 * 64)), std::free), size(n) {
    std::memset(data.get(), 0, n);
  }
  std::shared_ptr<std::byte> data;
  size_t size;
};

// Rows of a language model's kind: some inputs count more than others, rows differ in length.
std::vector<float> some_rows(int K, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> w(size_t(kRows) * size_t(K));
  for (int r = 0; r < kRows; r++) {
    const float length = 0.5f + std::fabs(normal(rng));
    for (int k = 0; k < K; k++) w[size_t(r) * size_t(K) + size_t(k)] = normal(rng) * length * (k % 3 ? 1.0f : 0.3f);
  }
  return w;
}

// As a weight of that type: random bytes of small scales where the type is quantized.
Bytes weights(Dtype type, int K, const std::vector<float>& values, std::mt19937& rng) {
  const size_t n = values.size();
  Bytes b(row_bytes(type, n));
  if (type == Dtype::f32) std::memcpy(b.data.get(), values.data(), b.size);
  else if (type == Dtype::f16) kernels::table(kernels::Isa::ref).to_f16(values.data(), reinterpret_cast<uint16_t*>(b.data.get()), n);
  else {
    for (size_t i = 0; i < b.size; i++) b.data.get()[i] = std::byte(rng());
    const size_t block = size_t(info(type).bytes), at = type == Dtype::q6_k ? 208 : 0;
    for (size_t i = 0; i < b.size; i += block) {
      const uint16_t d = uint16_t(0x1c00 + rng() % 0x800);   // 0.004 to 0.03
      std::memcpy(b.data.get() + i + at, &d, 2);
    }
  }
  (void)K;
  return b;
}

struct Case {
  CpuBackend device;
  Bytes data, coarse;
  Tensor w;
  std::unique_ptr<RowSearch> search;

  Case(Dtype type, int K, bool interleaved, int threads, const Bytes& plain, std::span<const double> energy)
      : device(*isa(), threads, true), data(interleaved ? size_t(kRows + 15) / 16 * 16 * x16_row_bytes(type, size_t(K)) : plain.size), coarse(64) {
    if (!interleaved) data = plain;
    for (int r = 0; interleaved && r < kRows; r += 16)
      kernels::interleave_x16(type, plain.data.get() + size_t(r) * row_bytes(type, size_t(K)), std::min(16, kRows - r), K,
                              data.data.get() + size_t(r) * x16_row_bytes(type, size_t(K)));
    w = Tensor::view(device, data.data.get(), {kRows, K}, type, data.data, interleaved);
    const uint64_t bytes = RowSearch::bytes_for(w);
    REQUIRE(bytes > 0);
    coarse = Bytes(size_t(bytes));
    RowSearch::Maker maker(device, w, energy, coarse.data.get());
    while (maker.step(100)) {}
    search = std::make_unique<RowSearch>(device, w, std::span<const std::byte>(coarse.data.get(), coarse.size), coarse.data);
  }
  static const kernels::Table* isa() {
    const char* error = nullptr;
    const kernels::Table* t = kernels::choose(std::getenv("TEALIGHT_ISA"), &error);
    REQUIRE(t);
    return t;
  }

  // Returns the share of groups computed exactly.
  double check(const Tensor& x, int k) {
    std::vector<RowSearch::Row> best(size_t(x.dim(0)) * size_t(k));
    REQUIRE(search->find(x, k, best));
    const Tensor y = linear(x, {&w});
    for (int64_t t = 0; t < x.dim(0); t++) {
      const float* row = y.data() + t * kRows;
      std::vector<RowSearch::Row> all;
      for (int i = 0; i < kRows; i++) all.push_back({i, row[i]});
      std::stable_sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.value > b.value; });
      for (int i = 0; i < k; i++) {
        CAPTURE(t);
        CAPTURE(i);
        const RowSearch::Row found = best[size_t(t * k + i)];
        REQUIRE(found.id == all[size_t(i)].id);
        REQUIRE(std::memcmp(&found.value, &all[size_t(i)].value, 4) == 0);
      }
    }
    return search->exact_share();
  }
};

Tensor vectors(CpuBackend& device, int n, int K, std::mt19937& rng, float outlier) {
  std::normal_distribution<float> normal;
  std::vector<float> x(size_t(n * K));
  for (int i = 0; i < n * K; i++) x[size_t(i)] = normal(rng) * (i % K % 37 == 5 ? outlier : 1.0f);
  return Tensor::from(device, x, {n, K});
}

std::vector<double> energies(int K) {
  std::vector<double> e(static_cast<size_t>(K));
  for (int k = 0; k < K; k++) e[size_t(k)] = k % 37 == 5 ? 100 : 1;
  return e;
}

}  // namespace

TEST_CASE("row search: the best rows of every type and layout are those of the full product") {
  std::mt19937 rng(1);
  for (const auto& [type, K] : {std::pair{Dtype::q8_0, 640}, {Dtype::q8_0, 576}, {Dtype::f16, 608}, {Dtype::f32, 320}, {Dtype::q6_k, 1024}}) {
    const Bytes plain = weights(type, K, some_rows(K, rng), rng);
    for (const bool interleaved : {false, true})
      for (const int threads : {1, 3}) {
        if (interleaved && !has_x16(type)) continue;
        CAPTURE(name(type));
        CAPTURE(interleaved);
        CAPTURE(threads);
        Case c(type, K, interleaved, threads, plain, energies(K));
        for (const int n : {1, RowSearch::kMaxVectors}) c.check(vectors(c.device, n, K, rng, 10), n == 1 ? 1 : 40);
        c.check(vectors(c.device, 2, K, rng, 1), 64);
      }
  }
}

TEST_CASE("row search: few rows are computed where the vector points at one") {
  std::mt19937 rng(2);
  constexpr int K = 640;
  const Bytes plain = weights(Dtype::q8_0, K, some_rows(K, rng), rng);
  Case c(Dtype::q8_0, K, true, 2, plain, energies(K));
  Tensor x = vectors(c.device, 1, K, rng, 3);
  std::vector<float> row(K);
  c.device.read_row(c.w, 777, row.data());
  for (int k = 0; k < K; k++) x.data()[k] += row[size_t(k)] * 4;
  CHECK(c.check(x, 1) < 0.05);
}

TEST_CASE("row search: equal rows, zeros and vectors that say nothing") {
  std::mt19937 rng(3);
  constexpr int K = 640;
  Bytes plain = weights(Dtype::q8_0, K, some_rows(K, rng), rng);
  const size_t row = row_bytes(Dtype::q8_0, K);
  for (int r = 0; r < kRows; r += 3) std::memcpy(plain.data.get() + size_t(r) * row, plain.data.get() + 3 * row, row);   // ties: the lower id
  for (int r = 1; r < kRows; r += 3) std::memset(plain.data.get() + size_t(r) * row, 0, row);
  Case c(Dtype::q8_0, K, true, 2, plain, energies(K));
  c.check(vectors(c.device, 3, K, rng, 2), 20);
  c.check(Tensor::zeros(c.device, {1, K}), 5);
  Tensor tiny = vectors(c.device, 1, K, rng, 1);
  for (int k = 0; k < K; k++) tiny.data()[k] *= 1e-35f;
  c.check(tiny, 3);
}

TEST_CASE("row search: what is not finite is told, huge rows do not hide others") {
  std::mt19937 rng(4);
  constexpr int K = 640;
  Bytes plain = weights(Dtype::q8_0, K, some_rows(K, rng), rng);
  const size_t row = row_bytes(Dtype::q8_0, K);
  const uint16_t huge = 0x7bff, nan = 0x7e00;
  std::memcpy(plain.data.get() + 4321 * row + 34, &huge, 2);   // a norm beyond what a half holds
  Case c(Dtype::q8_0, K, false, 2, plain, energies(K));
  c.check(vectors(c.device, 2, K, rng, 2), 10);
  Tensor x = vectors(c.device, 1, K, rng, 2);
  std::vector<RowSearch::Row> best(1);
  x.data()[3] = INFINITY;
  CHECK_FALSE(c.search->find(x, 1, best));
  std::memcpy(plain.data.get() + 4321 * row + 34, &nan, 2);
  Case bad(Dtype::q8_0, K, false, 2, plain, energies(K));
  CHECK_FALSE(bad.search->find(vectors(bad.device, 1, K, rng, 2), 1, best));
}

TEST_CASE("row search: bytes of another matrix are refused") {
  std::mt19937 rng(5);
  const Bytes plain = weights(Dtype::q8_0, 640, some_rows(640, rng), rng);
  Case c(Dtype::q8_0, 640, false, 1, plain, energies(640));
  const auto code = [&](std::span<const std::byte> bytes) {
    try {
      RowSearch(c.device, c.w, bytes, nullptr);
    } catch (const Error& e) {
      return e.code;
    }
    return Code::internal;
  };
  CHECK(code({c.coarse.data.get(), c.coarse.size - 64}) == Code::format);
  for (const size_t at : {0, 8, 16, 20}) {
    Bytes other(c.coarse.size);
    std::memcpy(other.data.get(), c.coarse.data.get(), other.size);
    other.data.get()[at] ^= std::byte(1);
    CHECK(code({other.data.get(), other.size}) == Code::format);
  }
  Bytes other(c.coarse.size);
  std::memcpy(other.data.get(), c.coarse.data.get(), other.size);
  other.data.get()[64 + 4 * 7 + 2] = std::byte(1);             // the order names an input that there is not
  CHECK(code({other.data.get(), other.size}) == Code::format);
}

TEST_CASE("row search: small matrices and those with few bits have none") {
  CpuBackend device(*Case::isa(), 1, true);
  const Bytes some(size_t(20) << 20);
  const auto bytes = [&](Dtype t, const Shape& s) { return RowSearch::bytes_for(Tensor::view(device, some.data.get(), s, t, some.data)); };
  CHECK(bytes(Dtype::q8_0, {1000, 640}) == 0);
  CHECK(bytes(Dtype::q4_0, {20000, 640}) == 0);
  CHECK(bytes(Dtype::f32, {20000, 40}) == 0);
  CHECK(bytes(Dtype::q8_0, {20000, 640}) > 0);
}
