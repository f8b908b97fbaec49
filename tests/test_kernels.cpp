// Every instruction set against `ref`, bit for bit, and `ref` against plain double arithmetic.
// Built a second time (test_kernels_emulated) with the sources of avxvnni, avx512 and amx compiled through functions that do what
// the instructions do, which runs them anywhere.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/parts.h"
#include "kernels/cpu/x16.h"
#include "kernels/kernels.h"
#include "tests/fixtures.h"

using namespace tealight;
using namespace tealight::kernels;

namespace {

const Table& ref() { return table(Isa::ref); }

// The sets to compare with ref.
std::vector<const Table*> others() {
#ifdef TEALIGHT_EMULATED
  return {&table(Isa::avxvnni), &table(Isa::avx512), &table(Isa::amx)};
#else
  std::vector<const Table*> t;
  for (int i = 1; i < kIsas; i++)
    if (isa_supported(Isa(i))) t.push_back(&table(Isa(i)));
  return t;
#endif
}

// A buffer with 64-byte alignment that ends where the allocation ends, so that a checker sees reads beyond it.
template <class T>
struct Buffer {
  explicit Buffer(size_t n, unsigned char fill = 0xff) : size(n) {
    bytes = static_cast<T*>(std::aligned_alloc(64, (n * sizeof(T) + 63) / 64 * 64 + 64));
    std::memset(bytes, fill, n * sizeof(T));
  }
  ~Buffer() { std::free(bytes); }
  Buffer(const Buffer&) = delete;
  T* get() { return bytes; }
  T& operator[](size_t i) { return bytes[i]; }
  size_t size;
  T* bytes;
};

std::mt19937_64 rng(7);
float normal() { return std::normal_distribution<float>()(rng); }
float uniform(float a, float b) { return std::uniform_real_distribution<float>(a, b)(rng); }

uint16_t half(float f) {
  uint16_t h;
  ref().to_f16(&f, &h, 1);
  return h;
}

// Equal bits, or NaN in both places.
size_t differences(const float* a, const float* b, size_t n) {
  size_t bad = 0;
  for (size_t i = 0; i < n; i++)
    if (std::memcmp(a + i, b + i, 4) && !(std::isnan(a[i]) && std::isnan(b[i]))) bad++;
  return bad;
}

// Offsets of the f16 fields in a block of each integer type (-1: none).
struct Fields {
  Dtype type;
  int d, m;
};
constexpr Fields kIntegerTypes[] = {
    {Dtype::q4_0, 0, -1}, {Dtype::q4_1, 0, 2}, {Dtype::q5_0, 0, -1}, {Dtype::q5_1, 0, 2}, {Dtype::q8_0, 0, -1},
    {Dtype::q2_k, 80, 82}, {Dtype::q3_k, 108, -1}, {Dtype::q4_k, 0, 2}, {Dtype::q5_k, 0, 2}, {Dtype::q6_k, 208, -1},
    {Dtype::iq4_nl, 0, -1}, {Dtype::iq4_xs, 0, -1}};

enum Mode { plain_data, all_low, all_high, zero_blocks, wild_scales, infinite_scales, kModes };

uint16_t random_scale(Mode mode) {
  switch (mode) {
    case zero_blocks: return rng() & 1 ? 0 : half(uniform(-0.1f, 0.1f));
    case wild_scales: return uint16_t(rng() % 3 == 0 ? rng() & 0x83ff : rng() % 2 ? (rng() & 0x8000) | 0x7bff : rng() & 0xbfff);
    case infinite_scales: return rng() % 4 ? half(uniform(-1, 1)) : uint16_t((rng() & 0x83ff) | 0x7c00);
    default: return half(uniform(-0.1f, 0.1f));
  }
}
std::vector<uint8_t> random_rows(const Fields& f, int rows, int K, Mode mode) {
  std::vector<uint8_t> w(size_t(rows) * row_bytes(f.type, size_t(K)));
  const bool is_signed = f.type == Dtype::q8_0;
  for (auto& b : w) b = mode == all_low ? (is_signed ? 0x80 : 0) : mode == all_high ? (is_signed ? 0x7f : 0xff) : uint8_t(rng());
  for (size_t o = 0; o < w.size(); o += size_t(info(f.type).bytes)) {
    const uint16_t d = random_scale(mode), m = random_scale(mode);
    if (mode == all_low && f.type == Dtype::q6_k) std::memset(&w[o + 192], 0x80, 16);  // the largest sub-scales
    std::memcpy(&w[o + size_t(f.d)], &d, 2);
    if (f.m >= 0) std::memcpy(&w[o + size_t(f.m)], &m, 2);
  }
  return w;
}
void random_activations(Buffer<float>& x, Mode mode) {
  for (size_t i = 0; i < x.size; i++) {
    switch (mode) {
      case all_low: x[i] = 1; break;
      case all_high: x[i] = rng() & 1 ? -1.0f : 1.0f; break;
      case zero_blocks: x[i] = i / 32 % 3 ? normal() : i % 2 ? 1e-38f : 0.0f; break;
      case wild_scales: x[i] = std::ldexp(normal(), int(rng() % 160) - 100); break;
      default: x[i] = normal();
    }
  }
}

void run_int(const Table& t, Dtype type, const std::vector<uint8_t>& w, int K, const Buffer<uint8_t>& act, int T, Buffer<float>& y,
             int N, int r0, int r1) {
  Buffer<uint8_t> scratch(matmul_scratch_bytes(K, T));
  t.matmul_int[int(type)](w.data(), K, act.bytes, T, y.get(), size_t(N), r0, r1, scratch.get());
}

std::string where(const Table& t, Dtype type, int mode, int K, int N, int T) {
  return std::string(t.isa) + " " + name(type) + " mode " + std::to_string(mode) + " K " + std::to_string(K) + " N " +
         std::to_string(N) + " T " + std::to_string(T);
}

}  // namespace

TEST_CASE("kernels: which instruction sets run here") {
  std::string line = "kernels compared with ref:";
  for (const Table* t : others()) line += std::string(" ") + t->isa;
  for (int i = 1; i < kIsas; i++)
    if (!isa_supported(Isa(i))) line += std::string("; not on this CPU: ") + isa_name(Isa(i));
  std::fprintf(stderr, "%s\n", line.c_str());
  const char* error;
  CHECK(choose(nullptr, &error) != nullptr);
  CHECK(choose("ref", &error) == &ref());
  CHECK(choose("mmx", &error) == nullptr);
  CHECK(std::string(error).find("ref, avx2, avxvnni, avx512, amx, neon, i8mm") != std::string::npos);
  for (int i = 0; i < kIsas; i++) {
    CHECK((choose(isa_name(Isa(i)), &error) != nullptr) == isa_supported(Isa(i)));
    if (!isa_supported(Isa(i))) CHECK(std::string(error) == std::string(isa_name(Isa(i))) + ": not supported by this CPU");
  }
}

TEST_CASE("kernels: quantize gives the same bytes, and refuses what is not finite") {
  for (Family family : {Family::block32, Family::block256})
    for (int K : {256, 512, 1280})
      for (int T : {1, 2, 3, 4, 5, 8, 17})
        for (int mode = 0; mode < infinite_scales; mode++) {
          Buffer<float> x(size_t(T) * size_t(K + 3));
          random_activations(x, Mode(mode));
          const size_t bytes = act_bytes(family, T, K);
          Buffer<uint8_t> a(bytes, 0), b(bytes, 0);
          REQUIRE(ref().quantize(family, x.get(), size_t(K + 3), T, K, a.get()));
          for (const Table* t : others()) {
            std::memset(b.get(), 0, bytes);
            REQUIRE(t->quantize(family, x.get(), size_t(K + 3), T, K, b.get()));
            CHECK(std::memcmp(a.get(), b.get(), bytes) == 0);
          }
        }
  std::vector<const Table*> all = others();
  all.push_back(&ref());
  for (const Table* t : all)
    for (float bad : {INFINITY, -INFINITY, NAN, -NAN})
      for (int at : {0, 15, 31, 100, 767}) {
        Buffer<float> x(768, 0);
        x[size_t(at)] = bad;
        Buffer<uint8_t> a(act_bytes(Family::block32, 3, 256));  // the larger of the two
        CHECK(!t->quantize(Family::block256, x.get(), 256, 3, 256, a.get()));
        CHECK(!t->quantize(Family::block32, x.get(), 256, 3, 256, a.get()));
        CHECK(!t->all_finite(x.get(), 768));
        x[size_t(at)] = 3e38f;
        CHECK(t->quantize(Family::block256, x.get(), 256, 3, 256, a.get()));
        CHECK(t->all_finite(x.get(), 768));
      }
}

TEST_CASE("kernels: integer products are the same bits on every set, split by rows, and token by token") {
  constexpr int kSizes[][2] = {{1, 35}, {2, 16}, {3, 21}, {5, 8}, {2, 1}, {17, 33}, {136, 19}};
  for (const Fields& f : kIntegerTypes)
    for (int mode = 0; mode < kModes; mode++)
      for (auto [blocks, N] : kSizes) {
        const int K = blocks * info(f.type).block;
        const bool large = K > 4096;  // more than one panel along K, and with 70 tokens more than one block of them
        if (blocks >= 17 && (large ? mode != plain_data || K > 5000 : mode == plain_data)) continue;
        const Family family = info(f.type).family;
        const auto w = random_rows(f, N, K, Mode(mode));
        for (int T : {1, 2, 3, 5, 8, 17, 70}) {
          if (T == 70 && !large) continue;
          Buffer<float> x(size_t(T) * size_t(K)), want(size_t(T) * size_t(N)), y(want.size);
          random_activations(x, Mode(mode));
          Buffer<uint8_t> act(act_bytes(family, T, K));
          REQUIRE(ref().quantize(family, x.get(), size_t(K), T, K, act.get()));
          run_int(ref(), f.type, w, K, act, T, want, N, 0, N);
          for (const Table* t : others()) {
            if (!t->matmul_int[int(f.type)]) continue;
            const std::string here = where(*t, f.type, mode, K, N, T);
            std::memset(y.get(), 0xff, y.size * 4);
            run_int(*t, f.type, w, K, act, T, y, N, 0, N);
            CHECK_MESSAGE(differences(want.get(), y.get(), y.size) == 0, here);
            if (N > 16) {
              std::memset(y.get(), 0xff, y.size * 4);
              run_int(*t, f.type, w, K, act, T, y, N, 16, N);
              CHECK_MESSAGE(std::isnan(y[0]), here);  // rows of others are not touched
              run_int(*t, f.type, w, K, act, T, y, N, 0, 16);
              CHECK_MESSAGE(differences(want.get(), y.get(), y.size) == 0, here);
            }
            for (int i = 0; i < T; i++) {
              Buffer<uint8_t> one(act_bytes(family, 1, K));
              Buffer<float> row{size_t(N)};
              t->quantize(family, x.get() + size_t(i) * size_t(K), size_t(K), 1, K, one.get());
              run_int(*t, f.type, w, K, one, 1, row, N, 0, N);
              CHECK_MESSAGE(differences(want.get() + size_t(i) * size_t(N), row.get(), size_t(N)) == 0, here);
            }
          }
        }
      }
}

namespace {

// Plain rows as x16 groups; the bytes after the last are left as they come.
std::unique_ptr<Buffer<uint8_t>> interleaved(Dtype type, const std::vector<uint8_t>& w, int rows, int K) {
  const size_t plain = row_bytes(type, size_t(K)), group = 16 * x16_row_bytes(type, size_t(K));
  auto x = std::make_unique<Buffer<uint8_t>>(size_t((rows + 15) / 16) * group);
  for (int r = 0; r < rows; r += 16) interleave_x16(type, w.data() + size_t(r) * plain, std::min(16, rows - r), K, x->get() + size_t(r / 16) * group);
  return x;
}

}  // namespace

TEST_CASE("kernels: integer products of any number of tokens with any number of rows, plain and interleaved") {
  for (const Fields& f : kIntegerTypes)
    for (int mode = 0; mode < kModes; mode++)
      for (int T = 4; T <= 70; T += mode == plain_data ? 1 : 13) {
        const Family family = info(f.type).family;
        const int N = 1 + (T * 7 + mode) % 37, K = (1 + T % 6) * info(f.type).block;
        const auto w = random_rows(f, N, K, Mode(mode));
        const auto groups = interleaved(f.type, w, N, K);
        Buffer<float> x(size_t(T) * size_t(K)), want(size_t(T) * size_t(N)), y(want.size);
        random_activations(x, Mode(mode));
        Buffer<uint8_t> act(act_bytes(family, T, K)), scratch(matmul_scratch_bytes(K, T));
        REQUIRE(ref().quantize(family, x.get(), size_t(K), T, K, act.get()));
        run_int(ref(), f.type, w, K, act, T, want, N, 0, N);
        for (const Table* t : others()) {
          std::memset(y.get(), 0xff, y.size * 4);
          run_int(*t, f.type, w, K, act, T, y, N, 0, N);
          CHECK_MESSAGE(differences(want.get(), y.get(), y.size) == 0, where(*t, f.type, mode, K, N, T));
          std::memset(y.get(), 0xff, y.size * 4);
          t->matmul_x16[int(f.type)](groups->get(), K, act.get(), T, y.get(), size_t(N), 0, N, scratch.get());
          CHECK_MESSAGE(differences(want.get(), y.get(), y.size) == 0, where(*t, f.type, mode, K, N, T) << " x16");
        }
      }
}

TEST_CASE("kernels: rows go into the x16 layout, field by field and word by word, and come out again") {
  for (const Fields& f : kIntegerTypes)
    for (int blocks : {1, 2, 3, 8})
      for (int rows : {1, 7, 15, 16, 17, 33}) {
        const int K = blocks * info(f.type).block;
        const size_t bytes = row_bytes(f.type, size_t(K)), group = 16 * x16_row_bytes(f.type, size_t(K));
        const auto w = random_rows(f, rows, K, plain_data);
        const auto x = interleaved(f.type, w, rows, K);
        std::vector<uint8_t> back(bytes + 1, 0xee);
        for (int r = 0; r < (rows + 15) / 16 * 16; r++) {
          extract_x16(f.type, x->get() + size_t(r / 16) * group, r % 16, K, back.data());
          const std::vector<uint8_t> want = r < rows ? std::vector<uint8_t>(w.begin() + long(bytes) * r, w.begin() + long(bytes) * (r + 1))
                                                     : std::vector<uint8_t>(bytes);
          REQUIRE_MESSAGE(std::memcmp(back.data(), want.data(), bytes) == 0, name(f.type));
          REQUIRE(back[bytes] == 0xee);
        }
        // d of the first and of the last block where the layout puts them; every byte is written, those of no row are zero
        const int each = info(f.type).family == Family::block32 ? 2 : 1, fields = f.m >= 0 || f.type == Dtype::iq4_xs ? 2 : 1;
        const int last = blocks - 1, r = std::min(rows, 16) - 1;
        const uint8_t* d = x->get() + size_t(last / each) * x16_chunk_bytes(f.type) + last % each * fields * 32 + r * 2;
        CHECK(std::memcmp(d, &w[size_t(r) * bytes + size_t(last * info(f.type).bytes + f.d)], 2) == 0);
        size_t nonzero = 0, wanted = 0;
        for (size_t i = 0; i < x->size; i++) nonzero += (*x)[i] != 0;
        for (uint8_t b : w) wanted += b != 0;
        CHECK(nonzero == wanted);
      }
}

TEST_CASE("kernels: products of x16 groups have the bits of the plain rows'") {
  constexpr int kSizes[][2] = {{1, 33}, {2, 16}, {3, 21}, {5, 70}, {2, 1}, {1, 17}, {17, 32}, {137, 19}};
  std::vector<const Table*> all = others();
  all.push_back(&ref());
  struct Restored {
    bool was = side_by_side;
    ~Restored() { side_by_side = was; }
  } restored;
  for (const Fields& f : kIntegerTypes)
    for (int mode = 0; mode < kModes; mode++)
      for (auto [blocks, N] : kSizes) {
        const int K = blocks * info(f.type).block;
        const bool large = K > 4096;
        if (blocks >= 17 && (large ? mode != plain_data || K > 5000 : mode == plain_data)) continue;
        const Family family = info(f.type).family;
        const auto w = random_rows(f, N, K, Mode(mode));
        const auto x16 = interleaved(f.type, w, N, K);
        for (int T : {1, 2, 3, 4, 5, 6, 7, 8, 9, 70}) {
          if (T == 70 && !large) continue;
          Buffer<float> x(size_t(T) * size_t(K)), want(size_t(T) * size_t(N)), y(want.size);
          random_activations(x, Mode(mode));
          Buffer<uint8_t> act(act_bytes(family, T, K)), scratch(matmul_scratch_bytes(K, T));
          REQUIRE(ref().quantize(family, x.get(), size_t(K), T, K, act.get()));
          run_int(ref(), f.type, w, K, act, T, want, N, 0, N);
          for (size_t i = 0; i < all.size() * 2; i++) {
            const Table* t = all[i / 2];
            side_by_side = i % 2;
            if (side_by_side && T > 2) continue;      // products of panels do not ask
            const auto run = [&](int r0, int r1) {
              t->matmul_x16[int(f.type)](x16->get(), K, act.get(), T, y.get(), size_t(N), r0, r1, scratch.get());
            };
            const std::string here = where(*t, f.type, mode, K, N, T);
            std::memset(y.get(), 0xff, y.size * 4);
            run(0, N);
            CHECK_MESSAGE(differences(want.get(), y.get(), y.size) == 0, here);
            if (N <= 16) continue;
            std::memset(y.get(), 0xff, y.size * 4);
            run(16, N);
            CHECK_MESSAGE(std::isnan(y[15]), here);   // rows of others are not touched
            run(0, 13);
            if (mode != infinite_scales) CHECK_MESSAGE((std::isnan(y[13]) || std::isnan(want[13])), here);
            run(0, 16);
            CHECK_MESSAGE(differences(want.get(), y.get(), y.size) == 0, here);
          }
        }
      }
}

TEST_CASE("kernels: integer products are near the products of widened weights") {
  for (const Fields& f : kIntegerTypes) {
    const int K = info(f.type).block * 2, N = 16;
    const auto w = random_rows(f, N, K, plain_data);
    Buffer<float> x{size_t(K)}, y{size_t(N)}, wide{size_t(N * K)};
    random_activations(x, plain_data);
    Buffer<uint8_t> act(act_bytes(info(f.type).family, 1, K));
    ref().quantize(info(f.type).family, x.get(), size_t(K), 1, K, act.get());
    run_int(ref(), f.type, w, K, act, 1, y, N, 0, N);
    ref().widen[int(f.type)](w.data(), wide.get(), size_t(N * K));
    for (int r = 0; r < N; r++) {
      double want = 0, magnitude = 0;
      for (int k = 0; k < K; k++) {
        want += double(wide[size_t(r * K + k)]) * double(x[size_t(k)]);
        magnitude += std::fabs(double(wide[size_t(r * K + k)])) * 4;
      }
      CHECK_MESSAGE(std::fabs(double(y[size_t(r)]) - want) < magnitude / 254, name(f.type));
    }
  }
}

TEST_CASE("kernels: widening and float products are the same bits on every set, and near double") {
  std::vector<Dtype> types = {Dtype::f32, Dtype::f16, Dtype::bf16};
  for (const Fields& f : kIntegerTypes) types.push_back(f.type);
  for (int i = 0; i < kDtypes; i++)
    if (info(Dtype(i)).family == Family::decode && ref().widen[i]) types.push_back(Dtype(i));
  for (Dtype type : types) {
    const int block = info(type).block;
    for (int n : {1, 2, 3, 7, 9}) {
      const int K = block == 1 ? n * 37 : n * block, N = n == 3 ? 16 : 13 + 3 * n;
      const size_t stride = row_bytes(type, size_t(K)) + (n == 2 ? 5 : 0);
      std::vector<uint8_t> w(size_t(N) * stride);
      Buffer<float> wide(size_t(N) * size_t(K)), other(wide.size);
      const Fields* fields = nullptr;
      for (const Fields& f : kIntegerTypes)
        if (f.type == type) fields = &f;
      for (int r = 0; r < N; r++) {
        uint8_t* row = &w[size_t(r) * stride];
        if (fields) {
          const auto one = random_rows(*fields, 1, K, plain_data);
          std::memcpy(row, one.data(), one.size());
        } else if (block == 1) {
          for (int k = 0; k < K; k++) {
            const float v = normal();
            const uint16_t h = type == Dtype::f16 ? half(v) : uint16_t(rng() & 0x3fff);
            if (type == Dtype::f32) std::memcpy(row + k * 4, &v, 4);
            else std::memcpy(row + k * 2, &h, 2);
          }
        } else {
          for (size_t i = 0; i < stride; i++) row[i] = uint8_t(rng() & 0x3b);
        }
        ref().widen[int(type)](row, wide.get() + size_t(r) * size_t(K), size_t(K));
        for (const Table* t : others()) {
          if (!t->widen[int(type)]) continue;
          t->widen[int(type)](row, other.get(), size_t(K));
          CHECK_MESSAGE(differences(other.get(), wide.get() + size_t(r) * size_t(K), size_t(K)) == 0, name(type));
        }
      }
      for (int T : {1, 2, 3, 5, 8, 17, 25}) {
        const size_t ldx = size_t(K) + 1;
        Buffer<float> x(size_t(T) * ldx), want(size_t(T) * size_t(N)), y(want.size);
        random_activations(x, plain_data);
        Buffer<uint8_t> scratch(matmul_scratch_bytes(K, T));
        ref().matmul_float[int(type)](w.data(), stride, K, x.get(), ldx, T, want.get(), size_t(N), 0, N, scratch.get());
        double worst = 0;
        for (int t = 0; t < T; t++)
          for (int r = 0; r < N; r++) {
            double sum = 0, magnitude = 0;
            for (int k = 0; k < K; k++) {
              const double p = double(wide[size_t(r) * size_t(K) + size_t(k)]) * double(x[size_t(t) * ldx + size_t(k)]);
              sum += p, magnitude += std::fabs(p);
            }
            if (magnitude > 0)
              worst = std::max(worst, std::fabs(sum - double(want[size_t(t) * size_t(N) + size_t(r)])) / magnitude);
          }
        CHECK_MESSAGE(worst < 1e-6 * std::sqrt(double(K)), name(type));
        for (const Table* t : others()) {
          const auto f = t->matmul_float[int(type)];
          if (!f) continue;
          const std::string here = where(*t, type, 0, K, N, T);
          std::memset(y.get(), 0xff, y.size * 4);
          f(w.data(), stride, K, x.get(), ldx, T, y.get(), size_t(N), 0, N, scratch.get());
          CHECK_MESSAGE(differences(want.get(), y.get(), y.size) == 0, here);
          if (N <= 16) continue;
          std::memset(y.get(), 0xff, y.size * 4);
          f(w.data(), stride, K, x.get(), ldx, T, y.get(), size_t(N), 16, N, scratch.get());
          CHECK_MESSAGE(std::isnan(y[0]), here);
          for (int i = 0; i < T; i++)
            f(w.data(), stride, K, x.get() + size_t(i) * ldx, ldx, 1, y.get() + size_t(i) * size_t(N), size_t(N), 0, 16, scratch.get());
          CHECK_MESSAGE(differences(want.get(), y.get(), y.size) == 0, here);
        }
      }
    }
  }
}

TEST_CASE("kernels: half precision both ways") {
  std::vector<const Table*> all = others();
  all.push_back(&ref());
  std::vector<uint16_t> h(65536);
  Buffer<float> f(65536);
  for (size_t i = 0; i < h.size(); i++) h[i] = uint16_t(i);
  for (const Table* t : all) {
    t->widen[int(Dtype::f16)](h.data(), f.get(), h.size());
    CHECK(f[0x3c00] == 1.0f);
    CHECK(f[1] == 0x1p-24f);
    CHECK(f[0xfbff] == -65504.0f);
    std::vector<uint16_t> back(h.size());
    t->to_f16(f.get(), back.data(), h.size());
    size_t bad = 0;
    for (size_t i = 0; i < h.size(); i++)
      if (back[i] != h[i] && !((i & 0x7fff) > 0x7c00 && back[i] == (h[i] | 0x200))) bad++;
    CHECK_MESSAGE(bad == 0, t->isa);
    const float odd[7] = {65519.99f, 65520.0f, 0x1p-25f, 0x1.8p-24f, 1 + 0x1p-11f, 1 + 0x1.8p-10f, 1e30f};
    const uint16_t want[7] = {0x7bff, 0x7c00, 0, 2, 0x3c00, 0x3c02, 0x7c00};
    uint16_t got[7];
    t->to_f16(odd, got, 7);
    for (int i = 0; i < 7; i++) CHECK_MESSAGE(got[i] == want[i], t->isa);
  }
  // every value between two neighbours: compare the sets on many patterns
  Buffer<float> x(100003);
  for (size_t i = 0; i < x.size; i++) {
    const uint32_t u = uint32_t(rng() & 0xffffffff) & (i & 1 ? 0xffffffff : 0xc7ffffff);
    std::memcpy(&x[i], &u, 4);
  }
  std::vector<uint16_t> a(x.size), b(x.size);
  ref().to_f16(x.get(), a.data(), x.size);
  for (const Table* t : others()) {
    t->to_f16(x.get(), b.data(), x.size);
    CHECK(a == b);
  }
}

TEST_CASE("kernels: norms, rope, softmax and elementwise: same bits, and near double") {
  auto near = [](double got, double want, double bound) { return std::fabs(got - want) <= bound; };
  for (int n : {1, 2, 5, 15, 16, 17, 31, 32, 48, 64, 67, 128, 1000}) {
    const size_t size = size_t(n);
    Buffer<float> x(size), w(size), b(size), want(size), y(size);
    for (size_t i = 0; i < size; i++) x[i] = normal() * 3, w[i] = normal(), b[i] = normal();
    auto same = [&](auto call, auto exact, double bound, const char* what) {
      std::memset(want.get(), 0xff, size * 4);
      call(ref(), want.get());
      for (size_t i = 0; i < size; i++) CHECK_MESSAGE(near(double(want[i]), exact(i), bound), what);
      for (const Table* t : others()) {
        std::memset(y.get(), 0xff, size * 4);
        call(*t, y.get());
        CHECK_MESSAGE(std::memcmp(y.get(), want.get(), size * 4) == 0, what);
      }
    };
    double squares = 0, sum = 0, var = 0, most = -1e30, total = 0;
    for (size_t i = 0; i < size; i++) squares += double(x[i]) * x[i], sum += x[i], most = std::max(most, double(x[i]));
    for (size_t i = 0; i < size; i++) var += (x[i] - sum / n) * (x[i] - sum / n), total += std::exp(x[i] - most);
    const double rms = 1 / std::sqrt(squares / n + 1e-5), dev = 1 / std::sqrt(var / n + 1e-5);
    same([&](const Table& t, float* o) { t.rms_norm(x.get(), w.get(), 1, 1e-5f, o, n); },
         [&](size_t i) { return x[i] * rms * (w[i] + 1); }, 2e-5, "rms_norm");
    same([&](const Table& t, float* o) { t.rms_norm(x.get(), nullptr, 1, 1e-5f, o, n); }, [&](size_t i) { return x[i] * rms; },
         1e-5, "rms_norm without weights");
    same([&](const Table& t, float* o) { t.layer_norm(x.get(), w.get(), b.get(), 1e-5f, o, n); },
         [&](size_t i) { return (x[i] - sum / n) * dev * w[i] + b[i]; }, n == 2 ? 1e-2 : 1e-4, "layer_norm");
    same([&](const Table& t, float* o) { t.layer_norm(x.get(), nullptr, nullptr, 1e-5f, o, n); },
         [&](size_t i) { return (x[i] - sum / n) * dev; }, n == 2 ? 1e-2 : 1e-4, "layer_norm without weights");
    same([&](const Table& t, float* o) { std::memcpy(o, x.get(), size * 4), t.softmax(o, n); },
         [&](size_t i) { return std::exp(x[i] - most) / total; }, 1e-6, "softmax");
    same([&](const Table& t, float* o) { t.add(x.get(), b.get(), o, size); }, [&](size_t i) { return x[i] + b[i]; }, 0, "add");
    same([&](const Table& t, float* o) { t.mul(x.get(), b.get(), o, size); }, [&](size_t i) { return x[i] * b[i]; }, 0, "mul");
    same([&](const Table& t, float* o) { t.scale(x.get(), 0.3f, o, size); }, [&](size_t i) { return x[i] * 0.3f; }, 0, "scale");
    same([&](const Table& t, float* o) { t.fma_scalar(x.get(), 0.3f, b.get(), o, size); },
         [&](size_t i) { return std::fmaf(x[i], 0.3f, b[i]); }, 0, "fma_scalar");
    for (bool neox : {true, false}) {
      const size_t half_n = size / 2;
      same([&](const Table& t, float* o) { std::memcpy(o, x.get(), size * 4), t.rope(o, w.get(), b.get(), n, neox); },
           [&](size_t i) {
             const size_t pairs = half_n * 2;
             if (i >= pairs) return double(x[i]);
             const size_t j = neox ? i % half_n : i / 2, p = neox ? j : 2 * j, q = neox ? j + half_n : 2 * j + 1;
             return i == p ? double(x[p]) * w[j] - double(x[q]) * b[j] : double(x[q]) * w[j] + double(x[p]) * b[j];
           },
           2e-6, "rope");
    }
  }
  // functions of one value, over their whole range
  Buffer<float> x(40000), up(x.size), want(x.size), y(x.size);
  for (size_t i = 0; i < x.size; i++) {
    x[i] = i < 20000 ? uniform(-12, 12) : i < 39000 ? uniform(-0.7f, 0.7f) : uniform(-300, 300);
    up[i] = normal();
  }
  x[0] = 0, x[1] = -0.0f, x[2] = 1e-30f, x[3] = -1e30f, x[4] = 1e18f, x[5] = 0.625f, x[6] = -88, x[7] = 88;
  auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  auto gelu_tanh = [](double v) { return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); };
  auto gelu_erf = [](double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); };
  auto curve = [&](auto call, auto exact, double bound, const char* what) {
    call(ref(), want.get());
    double worst = 0;
    for (size_t i = 0; i < x.size; i++) worst = std::max(worst, std::fabs(want[i] - exact(i)) / std::max(1.0, std::fabs(double(x[i]))));
    CHECK_MESSAGE(worst < bound, what << " " << worst);
    for (const Table* t : others()) {
      call(*t, y.get());
      CHECK_MESSAGE(std::memcmp(y.get(), want.get(), x.size * 4) == 0, what);
    }
  };
  curve([&](const Table& t, float* o) { t.silu_mul(x.get(), nullptr, o, x.size); }, [&](size_t i) { return silu(x[i]); }, 3e-7, "silu");
  curve([&](const Table& t, float* o) { t.silu_mul(x.get(), up.get(), o, x.size); }, [&](size_t i) { return silu(x[i]) * up[i]; }, 2e-6, "silu_mul");
  curve([&](const Table& t, float* o) { t.gelu_tanh_mul(x.get(), nullptr, o, x.size); }, [&](size_t i) { return gelu_tanh(x[i]); }, 5e-7, "gelu_tanh");
  curve([&](const Table& t, float* o) { t.gelu_tanh_mul(x.get(), up.get(), o, x.size); }, [&](size_t i) { return gelu_tanh(x[i]) * up[i]; }, 3e-6, "gelu_tanh_mul");
  curve([&](const Table& t, float* o) { t.gelu_erf_mul(x.get(), nullptr, o, x.size); }, [&](size_t i) { return gelu_erf(x[i]); }, 1e-6, "gelu_erf");
  curve([&](const Table& t, float* o) { t.gelu_erf_mul(x.get(), up.get(), o, x.size); }, [&](size_t i) { return gelu_erf(x[i]) * up[i]; }, 5e-6, "gelu_erf_mul");
  curve([&](const Table& t, float* o) { t.softcap(x.get(), 30, o, x.size); }, [&](size_t i) { return 30 * std::tanh(double(x[i]) / 30); }, 1e-5, "softcap");
  // a masked entry has exactly no weight
  for (const Table* t : others()) {
    float s[3] = {1, -INFINITY, 2};
    t->softmax(s, 3);
    CHECK(s[1] == 0.0f);
  }
}

namespace {

template <class E>
E element(float f);
template <>
float element<float>(float f) { return f; }
template <>
uint16_t element<uint16_t>(float f) { return half(f); }
double value(float f) { return f; }
double value(uint16_t h) {
  float f;
  ref().widen[int(Dtype::f16)](&h, &f, 1);
  return f;
}

// The three passes; each in `cuts` pieces.
void attend(const Table& t, const Attention& a, int cuts = 1) {
  const int first = a.seen[0].lo / 16, tiles = (a.seen[a.rows - 1].hi + 15) / 16 - first, queries = a.rows * a.heads, panels = (a.dv + 15) / 16;
  for (int i = 0; i < cuts; i++)
    if (tiles * i / cuts < tiles * (i + 1) / cuts) t.attention_scores(a, first + tiles * i / cuts, first + tiles * (i + 1) / cuts);
  for (int i = 0; i < cuts; i++) t.attention_weights(a, queries * i / cuts, queries * (i + 1) / cuts);
  for (int i = 0; i < cuts; i++)
    if (panels * i / cuts < panels * (i + 1) / cuts) t.attention_sum(a, 16 * (panels * i / cuts), std::min(16 * (panels * (i + 1) / cuts), a.dv));
}

// Row r sees positions lo[r]..hi[r]-1.
template <class E>
void check_attention(int d, int dv, int heads, const std::vector<Attention::Row>& seen, float softcap) {
  const int rows = int(seen.size()), lo = seen[0].lo, hi = seen.back().hi, queries = rows * heads;
  const size_t tiles = size_t(hi + 15) / 16, qs = size_t(d) + 3, os = size_t(dv) + 5;
  const size_t score_bytes = attention_score_bytes(queries, int(tiles) - lo / 16), work_bytes = attention_work_bytes(queries, d, dv);
  Buffer<float> q(qs * size_t(queries)), out(os * size_t(queries)), want(out.size), scores(score_bytes / 4), work(work_bytes / 4);
  // A tile holds K, V and something else; NaN where nothing is written.
  const size_t tile = 16 * size_t(d + dv) + 48;
  Buffer<E> kv(tiles * tile);
  auto k = [&](int j, int i) -> E& { return kv[size_t(j / 16) * tile + size_t(i) * 16 + size_t(j % 16)]; };
  auto v = [&](int j, int i) -> E& { return kv[size_t(j / 16) * tile + size_t(d) * 16 + size_t(j % 16 * dv + i)]; };
  for (auto* p = q.get(); p < q.get() + q.size; p++) *p = normal();
  for (int j = lo; j < hi; j++) {
    for (int i = 0; i < d; i++) k(j, i) = element<E>(normal());
    for (int i = 0; i < dv; i++) v(j, i) = element<E>(normal());
  }
  std::vector<const void*> at(tiles);
  for (size_t t = size_t(lo) / 16; t < tiles; t++) at[t] = &kv[t * tile];   // null where no row sees anything
  Attention a{};
  a.q = q.get(), a.q_row = qs * size_t(heads), a.q_stride = qs, a.tiles = at.data(), a.v = size_t(d) * 16 * sizeof(E);
  a.kv = sizeof(E) == 2 ? Dtype::f16 : Dtype::f32;
  a.rows = rows, a.heads = heads, a.d = d, a.dv = dv, a.seen = seen.data(), a.scale = 1 / std::sqrt(float(d)), a.softcap = softcap;
  a.out = out.get(), a.out_row = os * size_t(heads), a.out_stride = os, a.scores = scores.get(), a.work = work.get();
  // What is wanted: ref, one query at a time.
  double worst = 0;
  for (int i = 0; i < queries; i++) {
    Attention one = a;
    one.rows = one.heads = 1;
    one.q += size_t(i) * qs, one.seen += i / heads, one.out = want.get() + size_t(i) * os;
    attend(ref(), one);
    const auto [begin, end] = seen[size_t(i / heads)];
    std::vector<double> e;
    double most = -1e30, total = 0;
    for (int j = begin; j < end; j++) {
      double s = 0;
      for (int c = 0; c < d; c++) s += double(one.q[c]) * value(k(j, c));
      s *= double(a.scale);
      if (softcap > 0) s = softcap * std::tanh(s / softcap);
      e.push_back(s);
      most = std::max(most, s);
    }
    for (double& s : e) total += s = std::exp(s - most);
    for (int c = 0; c < dv; c++) {
      double o = 0;
      for (int j = begin; j < end; j++) o += e[size_t(j - begin)] / total * value(v(j, c));
      worst = std::max(worst, std::fabs(o - double(one.out[c])));
    }
  }
  CHECK_MESSAGE(worst < 1e-5, "d " << d << " lo " << lo << " hi " << hi << " rows " << rows);
  for (const Table* t : others())
    for (int cuts : {1, 3}) {
      if (!t->attention_sum) continue;
      std::memset(out.get(), 0xff, out.size * 4);
      std::memset(scores.get(), 0xff, score_bytes);
      std::memset(work.get(), 0xff, work_bytes);
      attend(*t, a, cuts);
      CHECK_MESSAGE(std::memcmp(out.get(), want.get(), out.size * 4) == 0,
                    t->isa << " d " << d << " dv " << dv << " rows " << rows << " heads " << heads << " lo " << lo << " hi " << hi << " cuts " << cuts);
    }
}

// A quantized cache gives what an f32 cache with its values gives.
void check_quantized(Dtype type, int d, int dv, int heads, const std::vector<Attention::Row>& seen) {
  const bool bytes = type == Dtype::q8_0;
  const int queries = int(seen.size()) * heads;
  const size_t tiles = size_t(seen.back().hi + 15) / 16, D = size_t(d), W = size_t(dv);
  const size_t k_bytes = 16 * row_bytes(type, D), tile = (k_bytes + 16 * row_bytes(type, W) + 63) / 64 * 64, floats = 16 * (D + W);
  Buffer<uint8_t> packed(tiles * tile);
  Buffer<float> wide(tiles * floats), q(size_t(queries) * D), out(size_t(queries) * W), want(out.size);
  Buffer<float> scores(attention_score_bytes(queries, int(tiles)) / 4), work(attention_work_bytes(queries, d, dv) / 4);
  for (size_t i = 0; i < q.size; i++) q[i] = normal();
  for (size_t t = 0; t < tiles; t++) {
    // code i of a 32-block that begins at byte `p`, whose bytes are `step` apart
    const auto code = [&](uint8_t* p, size_t step, size_t i) {
      uint8_t& b = p[(bytes ? i : i % 16) * step];
      const int q8 = int(rng() % 255) - 127, q4 = int(rng() % 16);
      if (bytes) b = uint8_t(q8);
      else b = uint8_t(i < 16 ? q4 : (b & 15) | q4 << 4);
      return float(bytes ? q8 : q4 - 8);
    };
    uint8_t *k = packed.get() + t * tile, *v = k + k_bytes;
    uint8_t *k_scales = k + 16 * D / (bytes ? 1 : 2), *v_scales = v + 16 * W / (bytes ? 1 : 2);
    for (size_t lane = 0; lane < 16; lane++) {
      for (size_t b = 0; b < D / 32; b++) {
        const float scale = uniform(0.001f, 0.02f);
        const uint16_t h = half(scale);
        std::memcpy(k_scales + (b * 16 + lane) * 2, &h, 2);
        for (size_t i = 0; i < 32; i++)
          wide[t * floats + (b * 32 + i) * 16 + lane] = code(k + b * (bytes ? 512 : 256) + lane, 16, i) * float(value(h));
      }
      for (size_t b = 0; b < W / 32; b++) {
        const uint16_t h = half(uniform(-0.02f, 0.02f));
        std::memcpy(v_scales + (lane * W / 32 + b) * 2, &h, 2);
        for (size_t i = 0; i < 32; i++)
          wide[t * floats + 16 * D + lane * W + b * 32 + i] = code(v + (lane * W / 32 + b) * (bytes ? 32 : 16), 1, i) * float(value(h));
      }
    }
  }
  std::vector<const void*> wide_tiles(tiles), packed_tiles(tiles);
  for (size_t t = 0; t < tiles; t++) wide_tiles[t] = wide.get() + t * floats, packed_tiles[t] = packed.get() + t * tile;
  Attention a{};
  a.q = q.get(), a.q_row = D * size_t(heads), a.q_stride = D, a.tiles = wide_tiles.data(), a.v = 16 * D * 4, a.kv = Dtype::f32;
  a.rows = int(seen.size()), a.heads = heads, a.d = d, a.dv = dv, a.seen = seen.data(), a.scale = 1 / std::sqrt(float(d));
  a.out = want.get(), a.out_row = W * size_t(heads), a.out_stride = W, a.scores = scores.get(), a.work = work.get();
  attend(ref(), a);
  a.tiles = packed_tiles.data(), a.v = k_bytes, a.kv = type, a.out = out.get();
  std::vector<const Table*> sets = others();
  sets.push_back(&ref());
  for (const Table* t : sets)
    for (int cuts : {1, 3}) {
      if (!t->attention_sum) continue;
      std::memset(out.get(), 0xff, out.size * 4);
      attend(*t, a, cuts);
      CHECK_MESSAGE(std::memcmp(out.get(), want.get(), out.size * 4) == 0, t->isa << " " << name(type) << " d " << d << " dv " << dv << " rows " << seen.size() << " cuts " << cuts);
    }
}

// `rows` rows from `position` on that see themselves and up to window - 1 before.
std::vector<Attention::Row> causal(int position, int rows, int window = 1 << 20) {
  std::vector<Attention::Row> v;
  for (int p = position; p < position + rows; p++) v.push_back({std::max(0, p - window + 1), p + 1});
  return v;
}

}  // namespace

TEST_CASE("kernels: attention: same bits for every length and head size, and near double") {
  constexpr int kDims[][2] = {{16, 16}, {20, 20}, {64, 64}, {80, 80}, {128, 128}, {256, 256}, {576, 512}, {1, 7}, {33, 40}};
  for (auto [d, dv] : kDims) {
    for (int n = 1; n <= 70; n += d > 128 ? 7 : 1) {
      const int heads = 1 + n % 7;
      check_attention<uint16_t>(d, dv, heads, {{0, n}}, n % 3 ? 0.0f : 20.0f);
      check_attention<float>(d, dv, heads, {{n / 2, n}}, 0.0f);
      check_attention<uint16_t>(d, dv, heads, {{n - 1, n + 9}}, 0.0f);
    }
    check_attention<uint16_t>(d, dv, 4, {{3, 300}}, 0.0f);
  }
}

TEST_CASE("kernels: attention: rows of a prompt give what each gives alone") {
  constexpr int kDims[][2] = {{64, 64}, {20, 24}, {128, 80}, {256, 256}};
  for (auto [d, dv] : kDims)
    for (int heads : {1, 3, 4, 8})
      for (int rows : {2, 5, 16, 33}) {
        if (rows * heads * d > 20000) continue;
        const int at = rows * heads % 37;
        check_attention<uint16_t>(d, dv, heads, causal(0, rows), 0.0f);
        check_attention<uint16_t>(d, dv, heads, causal(at, rows), 15.0f);
        check_attention<float>(d, dv, heads, causal(at + 100, rows), 0.0f);
        for (int window : {1, 2, 7, 40}) {
          check_attention<uint16_t>(d, dv, heads, causal(at, rows, window), 0.0f);
          check_attention<float>(d, dv, heads, causal(at + 70, rows, window), 0.0f);
        }
      }
  for (Dtype type : {Dtype::q8_0, Dtype::q4_0})
    for (auto [d, dv] : {std::pair{32, 32}, {64, 96}, {256, 256}}) {
      check_quantized(type, d, dv, 3, causal(0, 1));
      check_quantized(type, d, dv, 3, causal(150, 1));
      check_quantized(type, d, dv, 4, causal(37, 9));
      check_quantized(type, d, dv, 1, causal(130, 20, 50));
    }
  // Rows that skip positions, and rows that repeat one.
  check_attention<uint16_t>(64, 64, 3, {{0, 5}, {0, 5}, {3, 40}, {17, 41}, {17, 120}, {119, 300}}, 0.0f);
}

namespace {

std::vector<uint8_t> read_file(const std::string& path) {
  std::vector<uint8_t> bytes;
  if (FILE* f = std::fopen(path.c_str(), "rb")) {
    uint8_t piece[4096];
    for (size_t n; (n = std::fread(piece, 1, sizeof piece, f)) > 0;) bytes.insert(bytes.end(), piece, piece + n);
    std::fclose(f);
  }
  return bytes;
}
// The data of the tensor "blocks" of a test file: tensors are two-dimensional, infos end the header.
const uint8_t* blocks_of(const std::vector<uint8_t>& file) {
  size_t end = 0;
  for (std::string tensor : {"blocks", "quantized_input"}) {
    std::string key(8, '\0');
    key[0] = char(tensor.size());
    key += tensor + std::string("\2\0\0\0", 4);
    for (size_t i = 0; i + key.size() < file.size() && i < 4096; i++)
      if (!std::memcmp(&file[i], key.data(), key.size())) end = std::max(end, i + key.size() + 16 + 4 + 8);
  }
  return end ? &file[(end + 31) / 32 * 32] : nullptr;
}

}  // namespace

TEST_CASE("kernels: widening gives the values of the formats' reference" *
          doctest::skip(!have_fixture("formats/gguf_quants/Q4_0.gguf"))) {
  std::vector<const Table*> all = others();
  all.push_back(&ref());
  int types = 0;
  for (int i = 0; i < kDtypes; i++) {
    const std::string stem = std::string("formats/gguf_quants/") + name(Dtype(i));
    if (!ref().widen[i] || !have_fixture(stem + ".gguf")) continue;
    const auto file = read_file(fixture(stem + ".gguf")), golden = read_file(fixture(stem + ".expected.safetensors"));
    const uint8_t* blocks = blocks_of(file);
    REQUIRE(blocks);
    uint64_t header;
    std::memcpy(&header, golden.data(), 8);
    const std::string json(golden.begin() + 8, golden.begin() + 8 + long(header));
    const size_t key = json.find("\"dequantized\"");
    REQUIRE(key != std::string::npos);
    const size_t offset = std::stoul(json.substr(json.find("\"data_offsets\":[", key) + 16));
    types++;
    for (const Table* t : all) {
      if (!t->widen[i]) continue;
      Buffer<float> got(8 * 512);
      t->widen[i](blocks, got.get(), got.size);
      size_t bad = 0;
      for (size_t j = 0; j < got.size; j++) {
        float want;
        std::memcpy(&want, &golden[8 + header + offset + j * 4], 4);
        bad += !(want == got[j]);
      }
      CHECK_MESSAGE(bad == 0, t->isa << " " << name(Dtype(i)));
    }
  }
  CHECK(types >= 12);
}
