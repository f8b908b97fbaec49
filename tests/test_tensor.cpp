// Views, broadcasting and the operators of the tensor core on every supported instruction set.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <ctime>
#include <memory>
#include <vector>

#include "kernels/cpu/x16.h"
#include "kernels/kernels.h"
#include "src/base/error.h"
#include "src/nn/decoder.h"
#include "src/tensor/cpu_backend.h"
#include "src/tensor/ops.h"
#include "tests/alloc_count.h"

using namespace tealight;

namespace {

constexpr kernels::Isa kEverySet[] = {kernels::Isa::ref, kernels::Isa::avx2, kernels::Isa::avxvnni, kernels::Isa::avx512,
                                      kernels::Isa::amx, kernels::Isa::neon, kernels::Isa::i8mm};

struct Cpu {
  CpuBackend device{kernels::table(kernels::Isa::ref), 2, true};
  Tensor range(const Shape& s, float first = 0) {
    std::vector<float> v(static_cast<size_t>(s.elements()));
    for (size_t i = 0; i < v.size(); i++) v[i] = first + float(i);
    return Tensor::from(device, v, s);
  }
};

using Floats = std::vector<float>;

}  // namespace

TEST_CASE("tensor: views share storage and compose") {
  Cpu c;
  Tensor t = c.range({2, 3, 4});
  CHECK(t.select(0, 1).select(0, 2).to_vector() == Floats{20, 21, 22, 23});
  CHECK(t.slice(1, 1, 3).select(0, 0).to_vector() == Floats{4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(t.transpose(0, 2).select(0, 1).to_vector() == Floats{1, 13, 5, 17, 9, 21});
  CHECK(t.transpose(0, 2).contiguous().is_contiguous());
  CHECK(t.reshape({4, 6}).select(0, 3).to_vector() == Floats{18, 19, 20, 21, 22, 23});
  Tensor row = t.select(0, 0).select(0, 0);
  row.data()[0] = 100;
  CHECK(t.to_vector()[0] == 100);
  CHECK(row.expand({2, 4}).to_vector() == Floats{100, 1, 2, 3, 100, 1, 2, 3});
}

TEST_CASE("tensor: misuse names the operation and the shapes") {
  Cpu c;
  Tensor a = c.range({2, 3}), b = c.range({4, 5});
  auto message = [](auto f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      CHECK(e.code == Code::shape);
      return e.message;
    }
    return "";
  };
  CHECK(message([&] { add(a, b); }) == "add: shapes do not broadcast: [2, 3] and [4, 5]");
  CHECK(message([&] { matmul(a, b); }).find("[2, 3] and [4, 5]") != std::string::npos);
  CHECK(!message([&] { (void)a.slice(1, 2, 5); }).empty());
  CHECK(!message([&] { (void)a.transpose(0, 1).reshape({6}); }).empty());
  CHECK(!message([&] { (void)a.reshape({7}); }).empty());
  LinearSpec w{&b, nullptr};
  CHECK(!message([&] { linear(a, w); }).empty());
}

TEST_CASE("tensor: arithmetic broadcasts as NumPy does") {
  Cpu c;
  Tensor a = c.range({2, 3}), row = c.range({3}, 10), column = c.range({2, 1}, 1);
  CHECK(add(a, row).to_vector() == Floats{10, 12, 14, 13, 15, 17});
  CHECK(mul(a, column).to_vector() == Floats{0, 1, 2, 6, 8, 10});
  CHECK(sub(row, a).to_vector() == Floats{10, 10, 10, 7, 7, 7});
  CHECK(div(a, scale(column, 2)).to_vector() == Floats{0, 0.5f, 1, 0.75f, 1, 1.25f});
  CHECK(add(column, row).shape() == Shape{2, 3});
}

TEST_CASE("tensor: reductions") {
  Cpu c;
  CHECK(reduce(Reduce::sum, c.range({2, 3})).to_vector() == Floats{3, 12});
  CHECK(reduce(Reduce::mean, c.range({2, 3})).to_vector() == Floats{1, 4});
  CHECK(reduce(Reduce::max, c.range({2, 3})).to_vector() == Floats{2, 5});
  for (Floats v : {Floats{1, NAN, 3}, Floats{NAN, 1, 3}})   // the order of the elements does not matter
    CHECK(std::isnan(reduce(Reduce::max, Tensor::from(c.device, v, {3})).to_vector()[0]));
  // The sum and the mean of a long row, the whole of it counted.
  Tensor ones = Tensor::from(c.device, Floats(1 << 20, 1.0f), {1 << 20});
  CHECK(reduce(Reduce::sum, ones).to_vector()[0] == float(1 << 20));
  CHECK(reduce(Reduce::mean, ones).to_vector()[0] == 1.0f);
}

TEST_CASE("tensor: every dtype is read as its values") {
  Cpu c;
  auto read = [&](const void* p, Dtype t, int64_t n) { return Tensor::view(c.device, p, {n}, t, nullptr).to_vector(); };
  const int64_t i64[] = {-1, 1LL << 40};
  CHECK(read(i64, Dtype::i64, 2) == Floats{-1, 1099511627776.0f});
  const uint8_t u8[] = {0, 255};
  CHECK(read(u8, Dtype::u8, 2) == Floats{0, 255});
  const uint32_t u32[] = {7, 4294967295u};
  CHECK(read(u32, Dtype::u32, 2) == Floats{7, 4294967296.0f});
  const double f64[] = {0.5, -1e300};
  CHECK(read(f64, Dtype::f64, 2)[0] == 0.5f);
  const uint16_t f16[] = {0x3c00, 0xc000, 0x0001}, bf16[] = {0x3f80, 0xc000};
  CHECK(read(f16, Dtype::f16, 3) == Floats{1, -2, 0x1p-24f});
  CHECK(read(bf16, Dtype::bf16, 2) == Floats{1, -2});
}

TEST_CASE("tensor: matmul and linear on f32, bf16 and transposed weights") {
  for (kernels::Isa isa : kEverySet) {
    if (!kernels::isa_supported(isa)) continue;
    CpuBackend device(kernels::table(isa), 2, true);
    auto ones = [&](const Shape& s) { return Tensor::from(device, Floats(size_t(s.elements()), 1.0f), s); };
    CHECK(matmul(ones({2, 3}), ones({3, 4})).to_vector() == Floats(8, 3.0f));
    const std::vector<uint16_t> bf16(12, 0x3f80);
    Tensor w = Tensor::view(device, bf16.data(), {4, 3}, Dtype::bf16, nullptr);
    LinearSpec spec{&w, nullptr};
    CHECK(linear(ones({2, 3}), spec).to_vector() == Floats(8, 3.0f));
    // A transposed view gives the bits of the same weight laid out in rows.
    const int64_t K = 70, M = 37;
    std::vector<float> v(size_t(K * M));
    for (size_t i = 0; i < v.size(); i++) v[i] = std::sin(float(i));
    Tensor kt = Tensor::from(device, v, {K, M}), view = kt.transpose(0, 1), rows = view.contiguous();
    std::vector<float> xs(size_t(3 * K));
    for (size_t i = 0; i < xs.size(); i++) xs[i] = std::cos(float(i));
    Tensor x = Tensor::from(device, xs, {3, K});
    LinearSpec a{&view, nullptr}, b{&rows, nullptr};
    CHECK(linear(x, a).to_vector() == linear(x, b).to_vector());
    // Empty inner dimension: zeros.
    CHECK(matmul(Tensor::zeros(device, {2, 0}), Tensor::zeros(device, {0, 3})).to_vector() == Floats(6, 0.0f));
  }
}

TEST_CASE("tensor: softmax, norms and activations at their edges") {
  Cpu c;
  Floats p = softmax(Tensor::from(c.device, Floats{1000, 1000}, {2})).to_vector();
  CHECK(p[0] == 0.5f);
  // Rows far from zero: the mean goes first (a one-pass variance loses them).
  NormSpec layer;
  layer.layer = true;
  Floats y = norm(Tensor::from(c.device, Floats{10000, 10001, 10002, 10003}, {4}), layer).to_vector();
  CHECK(y[0] == doctest::Approx(-1.3416).epsilon(1e-4));
  CHECK(y[3] == doctest::Approx(1.3416).epsilon(1e-4));
  NormSpec rms;
  for (float v : norm(Tensor::from(c.device, Floats(64, 7e9f), {64}), rms).to_vector()) CHECK(v == doctest::Approx(1).epsilon(1e-5));
  Floats s = unary(Unary::silu, Tensor::from(c.device, Floats{-100, 0, 100}, {3})).to_vector();
  CHECK(std::fabs(s[0]) < 1e-30f);
  CHECK(s[1] == 0);
  CHECK(s[2] == 100);
}

TEST_CASE("tensor: an activation that is not finite is reported, once") {
  CpuBackend device(kernels::table(kernels::Isa::ref), 1, true);
  const std::vector<uint8_t> q8(34, 1);
  Tensor w = Tensor::view(device, q8.data(), {1, 32}, Dtype::q8_0, nullptr);
  LinearSpec spec{&w, nullptr};
  Floats x(32, 1.0f);
  linear(Tensor::from(device, x, {1, 32}), spec);
  CHECK(!device.take_fault());
  x[3] = INFINITY;
  linear(Tensor::from(device, x, {1, 32}), spec);
  CHECK(device.take_fault());
  CHECK(!device.take_fault());
}

TEST_CASE("tensor: memory blocks are used again") {
  CpuBackend device(kernels::table(kernels::Isa::ref), 1, true);
  { Tensor t = Tensor::empty(device, {1000}); }
  const uint64_t made = device.blocks_made();
  for (int i = 0; i < 100; i++) Tensor t = Tensor::empty(device, {1000 - i % 10});
  CHECK(device.blocks_made() == made);
  for (size_t bytes : {size_t(1), size_t(255), size_t(256), size_t(257), size_t(4096), size_t(5000), size_t(1) << 20, (size_t(1) << 20) + 1}) {
    Tensor t = Tensor::empty(device, {int64_t(bytes)}, Dtype::u8);
    std::memset(t.data<void>(), 0xff, bytes);
    CHECK(reinterpret_cast<uintptr_t>(t.data<void>()) % 64 == 0);
  }
}

TEST_CASE("tensor: activations beyond the range of half precision multiply right, for one token as for many") {
  for (kernels::Isa isa : kEverySet) {
    if (!kernels::isa_supported(isa)) continue;
    CpuBackend device(kernels::table(isa), 2, true);
    // f16 weights: 64 ones a row.
    const std::vector<uint16_t> f16(64 * 3, 0x3c00);
    Tensor wf = Tensor::view(device, f16.data(), {3, 64}, Dtype::f16, nullptr);
    // Q4_1 blocks of d = 1, m = 1 and codes 1: every weight is 2.
    std::vector<uint8_t> q4;
    for (int i = 0; i < 3 * 2; i++) {
      q4.insert(q4.end(), {0x00, 0x3c, 0x00, 0x3c});
      q4.insert(q4.end(), 16, uint8_t(0x11));
    }
    Tensor wq = Tensor::view(device, q4.data(), {3, 64}, Dtype::q4_1, nullptr);
    for (float x : {7e4f, 1e9f, 1e30f})
      for (int64_t rows : {1, 64, 65}) {
        const Floats xs(size_t(rows * 64), x);
        Tensor in = Tensor::from(device, xs, {rows, 64});
        const LinearSpec a{&wf, nullptr}, b{&wq, nullptr};
        for (float y : linear(in, a).to_vector()) REQUIRE(y == doctest::Approx(double(x) * 64).epsilon(1e-6));
        for (float y : linear(in, b).to_vector()) REQUIRE(y == doctest::Approx(double(x) * 128).epsilon(1e-3));
        CHECK(!device.take_fault());
      }
  }
}

TEST_CASE("tensor: a view keeps what it looks into alive") {
  CpuBackend device(kernels::table(kernels::Isa::ref), 1, true);
  auto bytes = std::make_shared<std::vector<uint8_t>>(34, uint8_t(0));
  std::weak_ptr<std::vector<uint8_t>> watch = bytes;
  Tensor row;
  {
    Tensor t = Tensor::view(device, bytes->data(), {1, 32}, Dtype::q8_0, bytes);
    bytes.reset();
    row = t.select(0, 0);
  }
  CHECK(!watch.expired());
  CHECK(row.to_vector() == Floats(32, 0.0f));
  row = Tensor();
  CHECK(watch.expired());
}

namespace {

// Random rows of a quantized type, plain and interleaved, as weights of both kinds.
struct BothWays {
  std::vector<uint8_t> plain;
  std::unique_ptr<uint8_t, void (*)(void*)> x16{nullptr, std::free};
  BothWays(Dtype t, int64_t rows, int64_t K) : plain(size_t(rows) * row_bytes(t, size_t(K))) {
    uint32_t random = 1;
    for (uint8_t& b : plain) b = uint8_t((random = random * 1664525 + 1013904223) >> 26);   // below 64: all scales are finite
    const size_t row = row_bytes(t, size_t(K)), group = 16 * x16_row_bytes(t, size_t(K));
    x16.reset(static_cast<uint8_t*>(std::aligned_alloc(64, size_t((rows + 15) / 16) * group)));
    for (int64_t r = 0; r < rows; r += 16)
      kernels::interleave_x16(t, plain.data() + size_t(r) * row, int(std::min<int64_t>(16, rows - r)), int(K), x16.get() + size_t(r / 16) * group);
  }
  Tensor tensor(Backend& d, const Shape& s, Dtype t, bool interleaved) const {
    return Tensor::view(d, interleaved ? x16.get() : plain.data(), s, t, nullptr, interleaved);
  }
};

}  // namespace

TEST_CASE("tensor: interleaved weights are read and multiply as plain ones, with either kind of activations") {
  for (kernels::Isa isa : kEverySet)
    for (int type = 0; type < kDtypes; type++) {
      const Dtype t = Dtype(type);
      if (!has_x16(t) || !kernels::isa_supported(isa)) continue;
      CAPTURE(name(t));
      const int64_t K = info(t).block == 32 ? 3 * 32 : 9 * 256, rows = 37;   // K: half a chunk at the end; more than one piece
      const BothWays w(t, rows, K);
      for (bool int8 : {true, false})
        for (int threads : {1, 2}) {
          CpuBackend device(kernels::table(isa), threads, int8);
          const Tensor plain = w.tensor(device, {rows, K}, t, false), x16 = w.tensor(device, {rows, K}, t, true);
          CHECK(x16.interleaved());
          CHECK(x16.bytes() == 48 * x16_row_bytes(t, size_t(K)));
          const Floats want = plain.to_vector();
          CHECK(x16.to_vector() == want);
          CHECK(x16.contiguous().to_vector() == want);
          CHECK(x16.slice(0, 16, 37).to_vector() == plain.slice(0, 16, 37).to_vector());
          CHECK(x16.slice(0, 16, 32).to_vector() == plain.slice(0, 16, 32).to_vector());
          const std::vector<int32_t> ids = {36, 0, 15, 16, 0};
          CHECK(embed(x16, ids, 2).to_vector() == embed(plain, ids, 2).to_vector());
          CHECK(add(x16, plain).to_vector() == add(plain, plain).to_vector());
          for (int64_t n : {1, 5}) {
            Floats xs(size_t(n * K));
            for (size_t i = 0; i < xs.size(); i++) xs[i] = std::sin(float(i));
            const Tensor x = Tensor::from(device, xs, {n, K}), part = x16.slice(0, 16, 37), same = plain.slice(0, 16, 37);
            const LinearSpec a[2] = {{&x16, nullptr}, {&part, nullptr}}, b[2] = {{&plain, nullptr}, {&same, nullptr}};
            Tensor ya[2], yb[2];
            linear_group(x, nullptr, a, ya);
            linear_group(x, nullptr, b, yb);
            for (int i = 0; i < 2; i++) CHECK(ya[i].to_vector() == yb[i].to_vector());
          }
        }
    }
}

TEST_CASE("tensor: views of interleaved weights lie between their groups") {
  Cpu c;
  const BothWays w(Dtype::q4_0, 4 * 32, 64);
  const Tensor t = w.tensor(c.device, {37, 64}, Dtype::q4_0, true), stack = w.tensor(c.device, {4, 32, 64}, Dtype::q4_0, true);
  const Tensor plain = w.tensor(c.device, {4, 32, 64}, Dtype::q4_0, false);
  CHECK(stack.to_vector() == plain.to_vector());
  CHECK(stack.select(0, 3).to_vector() == plain.select(0, 3).to_vector());
  CHECK(stack.slice(0, 1, 3).select(0, 1).to_vector() == plain.select(0, 2).to_vector());
  CHECK(stack.slice(1, 16, 32).select(0, 2).to_vector() == plain.slice(1, 16, 32).select(0, 2).to_vector());
  CHECK(stack.bytes() == plain.bytes());
  const auto refused = [](auto f, std::string_view why) {
    try {
      f();
    } catch (const Error& e) {
      CHECK(e.code == Code::shape);
      CHECK_MESSAGE(e.message.find(why) != std::string::npos, e.message);
      return;
    }
    FAIL("accepted");
  };
  refused([&] { (void)t.slice(0, 8, 37); }, "rows 8..37 of [37, 64], which is interleaved");
  refused([&] { (void)t.slice(0, 0, 20); }, "groups of 16");
  refused([&] { (void)stack.slice(1, 0, 8); }, "groups of 16");
  refused([&] { (void)t.slice(1, 0, 32); }, "last dimension");
  refused([&] { (void)t.select(0, 0); }, "a row of [37, 64]");
  refused([&] { (void)stack.select(1, 0); }, "a row of [4, 32, 64]");
  refused([&] { (void)t.transpose(0, 1); }, "transpose");
  refused([&] { (void)t.reshape({37 * 64}); }, "reshape");
  refused([&] { (void)t.expand({2, 37, 64}); }, "interleaved");
  const auto view = [&](const void* p, const Shape& s, Dtype type) { return [&c, p, s, type] { (void)Tensor::view(c.device, p, s, type, nullptr, true); }; };
  refused(view(w.x16.get(), {16, 64}, Dtype::f16), "F16");
  refused(view(w.x16.get(), {16, 48}, Dtype::q4_0), "whole blocks");
  refused(view(w.x16.get(), {16, 0}, Dtype::q4_0), "whole blocks");
  refused(view(w.x16.get(), {1024}, Dtype::q4_0), "[1024]");
  refused(view(w.x16.get(), {2, 8, 64}, Dtype::q4_0), "multiples of 16");
  refused(view(w.x16.get() + 32, {16, 64}, Dtype::q4_0), "64 bytes");
}

TEST_CASE("tensor: a row of an interleaved table is embedded without taking memory") {
  Cpu c;
  const BothWays w(Dtype::q6_k, 20, 2304);
  const Tensor table = w.tensor(c.device, {20, 2304}, Dtype::q6_k, true);
  const int32_t ids[1] = {17};
  embed(table, ids, 1);
  const uint64_t before = g_allocated_bytes, blocks = c.device.blocks_made();
  for (int i = 0; i < 10; i++) embed(table, ids, 1);
  CHECK(g_allocated_bytes == before);
  CHECK(c.device.blocks_made() == blocks);
}

TEST_CASE("tensor: a mixture of experts in every quantized type gives the same bits on every instruction set and batch") {
  constexpr int64_t kExperts = 4, kWidth = 256, kRows = 6;
  for (int type = 0; type < kDtypes; type++) {
    const Dtype t = Dtype(type);
    if (info(t).family != Family::block32 && info(t).family != Family::block256) continue;
    CAPTURE(name(t));
    std::vector<uint8_t> bytes(3 * size_t(kExperts * kWidth) * row_bytes(t, kWidth));
    uint32_t random = 1;
    for (uint8_t& b : bytes) b = uint8_t((random = random * 1664525 + 1013904223) >> 26);   // below 64: all scales are finite
    auto run = [&](kernels::Isa isa, int threads, bool one_by_one) {
      CpuBackend device(kernels::table(isa), threads, true);
      auto matrix = [&](int which) {
        return Tensor::view(device, bytes.data() + size_t(which) * bytes.size() / 3, {kExperts, kWidth, kWidth}, t, nullptr);
      };
      auto floats = [&](const Shape& s, float spread) {
        Floats v(size_t(s.elements()));
        for (size_t i = 0; i < v.size(); i++) v[i] = spread * std::sin(float(i * 7 % 1013));
        return Tensor::from(device, v, s);
      };
      nn::Moe moe;
      moe.top = 2;
      moe.router.w = floats({kExperts, kWidth}, 0.1f);
      for (int64_t e = 0; e < kExperts; e++) {
        nn::Mlp m;
        m.gate.w = matrix(0).select(0, e);
        m.up.w = matrix(1).select(0, e);
        m.down.w = matrix(2).select(0, e);
        moe.experts.push_back(std::move(m));
      }
      Tensor x = floats({kRows, kWidth}, 1e-4f);
      if (!one_by_one) return forward(moe, x).to_vector();
      Floats all;
      for (int64_t r = 0; r < kRows; r++)
        for (float v : forward(moe, x.slice(0, r, r + 1)).to_vector()) all.push_back(v);
      return all;
    };
    const Floats expected = run(kernels::Isa::ref, 1, false);
    double size = 0;
    for (float v : expected) size += std::fabs(double(v));
    CHECK(std::isfinite(size));
    CHECK(size > 0);
    for (kernels::Isa isa : kEverySet) {
      if (!kernels::isa_supported(isa)) continue;
      CHECK(run(isa, 2, false) == expected);
      CHECK(run(isa, 1, true) == expected);
    }
  }
}

// ARM binaries are mostly run by an emulator.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__aarch64__)
TEST_CASE("tensor: a tiny network is a matter of microseconds") {
  const char* error = nullptr;
  CpuBackend device(*kernels::choose(nullptr, &error), 1, true);
  auto layer = [&](int64_t out, int64_t in) { return Tensor::from(device, Floats(size_t(out * in), 0.1f), {out, in}); };
  const Tensor w1 = layer(64, 6), w2 = layer(8, 64), w3 = layer(4, 8), x = layer(1, 6);
  const LinearSpec l1{&w1, nullptr}, l2{&w2, nullptr}, l3{&w3, nullptr};
  double best = 1e9;                                 // the best of many: other work on the machine only makes it slower
  for (int i = 0; i < 20000; i++) {
    timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    Tensor y = linear(activate(Activation::relu, linear(activate(Activation::relu, linear(x, l1)), l2)), l3);
    clock_gettime(CLOCK_MONOTONIC, &b);
    best = std::min(best, double(b.tv_sec - a.tv_sec) * 1e6 + double(b.tv_nsec - a.tv_nsec) / 1e3);
    if (i == 0) CHECK(y.to_vector()[0] == doctest::Approx(0.1 * 0.1 * 6 * 64 * 0.1 * 8 * 0.1));   // all weights and inputs are 0.1
  }
  MESSAGE("6-64-8-4 forward: " << best << " us");
  CHECK(best < 3);
}
#endif
