// Proofs that the tensor core's shape holds for what is to come: a small tape takes a gradient through a decoder block,
// and the same block runs on a device whose memory the host cannot read.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "src/base/error.h"
#include "src/nn/decoder.h"
#include "src/tensor/cpu_backend.h"

using namespace tealight;

namespace {

struct Sizes {
  int model, heads, kv_heads, head, ff;
};
constexpr Sizes kTiny{16, 2, 1, 8, 24};
constexpr int kTokens = 5;

Tensor random_tensor(Backend& device, const Shape& shape, unsigned seed, float spread) {
  std::mt19937 random(seed);
  std::vector<float> v(static_cast<size_t>(shape.elements()));
  for (float& x : v) x = spread * (float(random() >> 8) / float(1 << 24) - 0.5f);
  return Tensor::from(device, v, shape);
}

nn::DecoderBlock llama_block(Backend& device, const Sizes& z = kTiny) {
  nn::DecoderBlock b;
  auto linear = [&](int64_t out, int64_t in, unsigned seed) {
    nn::Linear l;
    l.w = random_tensor(device, {out, in}, seed, 0.8f);
    return l;
  };
  auto norm = [&](unsigned seed) {
    nn::Norm n;
    n.w = random_tensor(device, {z.model}, seed, 2);
    n.on = true;
    return n;
  };
  b.attn_norm = norm(1);
  b.ffn_norm = norm(2);
  b.attn.spec = {z.heads, z.kv_heads, z.head, z.head, 1 / std::sqrt(float(z.head)), 0};
  b.attn.q = linear(z.heads * z.head, z.model, 3);
  b.attn.k = linear(z.kv_heads * z.head, z.model, 4);
  b.attn.v = linear(z.kv_heads * z.head, z.model, 5);
  b.attn.out = linear(z.model, z.heads * z.head, 6);
  b.attn.rope = 0;
  b.mlp.gate = linear(z.ff, z.model, 7);
  b.mlp.up = linear(z.ff, z.model, 8);
  b.mlp.down = linear(z.model, z.ff, 9);
  return b;
}

// The block over rows x [n, model] of a sequence, from `position` on.
Tensor run_block(const nn::DecoderBlock& block, const Tensor& x, nn::State& state, int position) {
  const auto n = size_t(x.dim(0));
  std::vector<int32_t> ids(n), positions(n);
  for (size_t i = 0; i < n; i++) positions[i] = position + int32_t(i);
  std::vector<nn::State*> states(n, &state);
  std::vector<AttentionRow> rows;
  nn::Batch batch{ids, positions, states, rows};
  batch.prepare();
  Tensor cos, sin;
  const nn::Rope rope = nn::Rope::plain(block.attn.spec.d, 10000, true);
  rope.table(x.device(), positions, false, cos, sin);
  return forward(block, x, batch, 0, rope.neox, cos, sin);
}
// Over kTokens rows of a fresh sequence.
Tensor run_block(const nn::DecoderBlock& block, const Tensor& x) {
  const nn::StateMemory::LayerSpec layer{kTiny.kv_heads, kTiny.head, kTiny.head};
  nn::StateMemory memory(x.device(), {&layer, 1}, Dtype::f32, 0);
  nn::State state(memory, kTokens);
  return run_block(block, x, state, 0);
}

// --- a small tape --------------------------------------------------------------------------------------------------------

using Values = std::vector<double>;

Values values(const Tensor& t) {
  std::vector<float> v = t.to_vector();
  return {v.begin(), v.end()};
}

struct TestTape : Tape {
  struct Node {
    Op op{};
    std::vector<Tensor> inputs;
    Tensor output;
    NormSpec norm;
    AttentionSpec attention;
    bool neox = false;
  };
  std::vector<std::unique_ptr<Node>> nodes;
  std::map<const void*, Values> gradients;           // by tensor node

  TestTape() { record = &TestTape::append; }

  void* leaf() {
    nodes.push_back(std::make_unique<Node>());
    return nodes.back().get();
  }
  static void append(Tape* self, const OpRecord& r) {
    auto& tape = *static_cast<TestTape*>(self);
    auto n = std::make_unique<Node>();
    n->op = r.op;
    for (const Tensor* t : r.inputs) n->inputs.push_back(t ? *t : Tensor());
    if (r.op == Op::norm) n->norm = *static_cast<const NormSpec*>(r.attributes);
    if (r.op == Op::attention) n->attention = *static_cast<const AttentionAttributes*>(r.attributes)->spec;
    if (r.op == Op::rope) n->neox = *static_cast<const bool*>(r.attributes);
    r.output.node = n.get();
    n->output = r.output;
    tape.nodes.push_back(std::move(n));
  }

  void accumulate(const Tensor& t, const Values& g) {
    if (!t || !t.node) return;
    Values& sum = gradients[t.node];
    sum.resize(g.size());
    for (size_t i = 0; i < g.size(); i++) sum[i] += g[i];
  }

  void backward(const Tensor& y, const Values& seed) {
    gradients[y.node] = seed;
    active_tape = nullptr;
    for (size_t i = nodes.size(); i-- > 0;)
      if (auto g = gradients.find(nodes[i].get()); g != gradients.end() && !nodes[i]->inputs.empty()) step(*nodes[i], Values(g->second));
  }

  void step(const Node& n, const Values& g) {
    switch (n.op) {
      case Op::add: accumulate(n.inputs[0], g), accumulate(n.inputs[1], g); return;
      case Op::linear: {
        const Tensor &x = n.inputs[0], &w = n.inputs[1];
        const size_t rows = size_t(x.dim(0)), in = size_t(x.dim(1)), out = size_t(w.dim(0));
        Values vx = values(x), vw = values(w), gx(vx.size()), gw(vw.size());
        for (size_t t = 0; t < rows; t++)
          for (size_t o = 0; o < out; o++)
            for (size_t i = 0; i < in; i++) {
              gx[t * in + i] += g[t * out + o] * vw[o * in + i];
              gw[o * in + i] += g[t * out + o] * vx[t * in + i];
            }
        accumulate(x, gx), accumulate(w, gw);
        return;
      }
      case Op::norm: {                               // y_i = x_i r w_i with r = (mean(x^2) + eps)^(-1/2)
        const Tensor& x = n.inputs[0];
        const size_t d = size_t(x.dim(-1)), rows = size_t(x.elements()) / d;
        Values v = values(x), w = values(n.inputs[1]), gx(v.size());
        for (size_t t = 0; t < rows; t++) {
          double square = 0, dot = 0;
          for (size_t i = 0; i < d; i++) square += v[t * d + i] * v[t * d + i];
          const double r = 1 / std::sqrt(square / double(d) + double(n.norm.eps));
          for (size_t i = 0; i < d; i++) dot += g[t * d + i] * w[i] * v[t * d + i];
          for (size_t i = 0; i < d; i++) gx[t * d + i] = r * g[t * d + i] * w[i] - r * r * r * v[t * d + i] * dot / double(d);
        }
        accumulate(x, gx);
        return;
      }
      case Op::rope: {                               // a rotation: its transpose turns back
        const Tensor& x = n.inputs[0];
        const size_t rows = size_t(x.dim(0)), heads = size_t(x.dim(1)), d = size_t(x.dim(2)), half = size_t(n.inputs[1].dim(1));
        REQUIRE(n.neox);
        Values c = values(n.inputs[1]), s = values(n.inputs[2]), gx = g;
        for (size_t t = 0; t < rows; t++)
          for (size_t h = 0; h < heads; h++)
            for (size_t i = 0; i < half; i++) {
              const size_t a = (t * heads + h) * d + i, b = a + half;
              gx[a] = g[a] * c[t * half + i] + g[b] * s[t * half + i];
              gx[b] = g[b] * c[t * half + i] - g[a] * s[t * half + i];
            }
        accumulate(x, gx);
        return;
      }
      case Op::gated: {
        Values a = values(n.inputs[0]), u = values(n.inputs[1]), ga(a.size()), gu(a.size());
        for (size_t i = 0; i < a.size(); i++) {
          const double sigmoid = 1 / (1 + std::exp(-a[i]));
          ga[i] = g[i] * u[i] * sigmoid * (1 + a[i] * (1 - sigmoid));
          gu[i] = g[i] * a[i] * sigmoid;
        }
        accumulate(n.inputs[0], ga), accumulate(n.inputs[1], gu);
        return;
      }
      case Op::attention: {                          // causal, from an empty cache
        const AttentionSpec& a = n.attention;
        const size_t rows = size_t(n.inputs[0].dim(0)), heads = size_t(a.heads), group = size_t(a.heads / a.kv_heads), d = size_t(a.d);
        const size_t kv_row = size_t(a.kv_heads) * d;
        Values q = values(n.inputs[0]), k = values(n.inputs[1]), v = values(n.inputs[2]), gq(q.size()), gk(k.size()), gv(v.size());
        for (size_t t = 0; t < rows; t++)
          for (size_t h = 0; h < heads; h++) {
            const double *qr = &q[(t * heads + h) * d], *gr = &g[(t * heads + h) * d];
            const size_t shared = h / group * d;
            Values p(t + 1), gp(t + 1);
            double sum = 0, mean = 0;
            for (size_t j = 0; j <= t; j++) {
              double score = 0;
              for (size_t i = 0; i < d; i++) score += qr[i] * k[j * kv_row + shared + i];
              sum += p[j] = std::exp(score * double(a.scale));
            }
            for (size_t j = 0; j <= t; j++) {
              p[j] /= sum;
              for (size_t i = 0; i < d; i++) {
                gp[j] += gr[i] * v[j * kv_row + shared + i];
                gv[j * kv_row + shared + i] += gr[i] * p[j];
              }
              mean += p[j] * gp[j];
            }
            for (size_t j = 0; j <= t; j++)
              for (size_t i = 0; i < d; i++) {
                const double gs = p[j] * (gp[j] - mean) * double(a.scale);
                gq[(t * heads + h) * d + i] += gs * k[j * kv_row + shared + i];
                gk[j * kv_row + shared + i] += gs * qr[i];
              }
          }
        accumulate(n.inputs[0], gq), accumulate(n.inputs[1], gk), accumulate(n.inputs[2], gv);
        return;
      }
      default: FAIL("an op of the block has no backward here");
    }
  }
};

// --- a device of its own ---------------------------------------------------------------------------------------------------

// Its addresses are wrong by a constant: whoever reads its memory but this class dies at once. Plain loops, no kernels.
class ToyDevice final : public Backend {
 public:
  static constexpr size_t kBias = size_t(1) << 46;
  int live = 0, calls = 0;

  std::string_view name() const override { return "toy"; }
  Storage* allocate(size_t bytes) override {
    auto* s = new Storage;
    s->device = this;
    s->bytes = bytes;
    s->data = static_cast<char*>(std::malloc(bytes + 1)) + kBias;
    live++;
    return s;
  }
  void free(Storage* s) noexcept override {
    std::free(static_cast<char*>(s->data) - kBias);
    delete s;
    live--;
  }
  void upload(const void* host, void* device, size_t bytes) override { std::memcpy(static_cast<char*>(device) - kBias, host, bytes); }
  void download(const void* device, void* host, size_t bytes) override {
    std::memcpy(host, static_cast<const char*>(device) - kBias, bytes);
  }
  void copy_bytes(const void*, void*, size_t) override { absent(); }
  static float* at(const Tensor& t) { return reinterpret_cast<float*>(t.data<char>() - kBias); }
  static float* at(void* p) { return reinterpret_cast<float*>(static_cast<char*>(p) - kBias); }

  void copy(const Tensor& in, const Tensor& out) override {
    REQUIRE(in.is_contiguous());
    std::memcpy(at(out), at(in), size_t(in.elements()) * 4);
  }
  void norm(const Tensor& x, const NormSpec& n, const Tensor& out) override {
    calls++;
    const int64_t d = x.dim(-1);
    for (int64_t r = 0; r < x.elements() / d; r++) {
      double square = 0;
      for (int64_t i = 0; i < d; i++) square += double(at(x)[r * d + i]) * double(at(x)[r * d + i]);
      const double s = 1 / std::sqrt(square / double(d) + double(n.eps));
      for (int64_t i = 0; i < d; i++) at(out)[r * d + i] = float(double(at(x)[r * d + i]) * s * double(at(*n.w)[i]));
    }
  }
  void linear(const Tensor& x, const NormSpec* n, std::span<const LinearSpec> ws, const Tensor* residual, std::span<Tensor> ys) override {
    calls++;
    Tensor h = n ? tealight::norm(x, *n) : x;
    for (size_t w = 0; w < ws.size(); w++)
      for (int64_t t = 0; t < x.dim(0); t++)
        for (int64_t o = 0; o < ws[w].w->dim(0); o++) {
          double sum = residual ? double(at(*residual)[t * ws[w].w->dim(0) + o]) : 0;
          for (int64_t i = 0; i < x.dim(1); i++) sum += double(at(h)[t * x.dim(1) + i]) * double(at(*ws[w].w)[o * x.dim(1) + i]);
          at(ys[w])[t * ws[w].w->dim(0) + o] = float(sum);
        }
  }
  void gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) override {
    calls++;
    REQUIRE(act == Activation::silu);
    for (int64_t i = 0; i < gate.elements(); i++) {
      const double g = double(at(gate)[i]);
      at(out)[i] = float(g / (1 + std::exp(-g)) * double(at(up)[i]));
    }
  }
  void rope(const Tensor& x, const Tensor& cos, const Tensor& sin, bool neox) override {
    calls++;
    REQUIRE(neox);
    const int64_t heads = x.dim(1), d = x.dim(2), half = cos.dim(1);
    for (int64_t t = 0; t < x.dim(0); t++)
      for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < half; i++) {
          float* p = at(x) + (t * heads + h) * d + i;
          const float a = p[0], b = p[half], c = at(cos)[t * half + i], s = at(sin)[t * half + i];
          p[0] = a * c - b * s;
          p[half] = b * c + a * s;
        }
  }
  void attention(const AttentionSpec& s, const Tensor& q, const Tensor& k, const Tensor& v, std::span<const AttentionRow> rows,
                 const Tensor& out) override {
    calls++;
    const int64_t d = s.d, kv_row = s.kv_heads * d;
    for (size_t r = 0; r < rows.size(); r++) {
      // Its own layout inside a tile: keys and values by position.
      auto row = [&](size_t part, int j) { return at(static_cast<char*>(rows[r].kv->tiles[j / 16]) + part) + j % 16 * kv_row; };
      auto key = [&](int j) { return row(rows[r].kv->k, j); };
      auto val = [&](int j) { return row(rows[r].kv->v, j); };
      std::memcpy(key(rows[r].position), at(k) + int64_t(r) * kv_row, size_t(kv_row) * 4);
      std::memcpy(val(rows[r].position), at(v) + int64_t(r) * kv_row, size_t(kv_row) * 4);
      for (int h = 0; h < s.heads; h++) {
        const float* qr = at(q) + (int64_t(r) * s.heads + h) * d;
        const int64_t shared = h / (s.heads / s.kv_heads) * d;
        std::vector<double> p;
        double sum = 0;
        for (int j = rows[r].first; j <= rows[r].position; j++) {
          double score = 0;
          for (int64_t i = 0; i < d; i++) score += double(qr[i]) * double(key(j)[shared + i]);
          p.push_back(std::exp(score * double(s.scale)));
          sum += p.back();
        }
        for (int64_t i = 0; i < d; i++) {
          double o = 0;
          for (int j = rows[r].first; j <= rows[r].position; j++) o += p[size_t(j - rows[r].first)] / sum * double(val(j)[shared + i]);
          at(out)[(int64_t(r) * s.heads + h) * d + i] = float(o);
        }
      }
    }
  }
  // Not needed by the block.
  [[noreturn]] static void absent() { fail(Code::unsupported, "the toy device lacks this op"); }
  void fill(const Tensor&, float) override { absent(); }
  void unary(Unary, const Tensor&, float, const Tensor&) override { absent(); }
  void binary(Binary, const Tensor&, const Tensor&, const Tensor&) override { absent(); }
  void add_scaled(const Tensor&, float, const Tensor&) override { absent(); }
  void reduce(Reduce, const Tensor&, const Tensor&) override { absent(); }
  void softmax(const Tensor&, const Tensor&) override { absent(); }
  void matmul(const Tensor&, const Tensor&, const Tensor&) override { absent(); }
  void embed(const Tensor&, std::span<const int32_t>, float, const Tensor&) override { absent(); }
};

}  // namespace

TEST_CASE("block: gradients by a tape equal finite differences") {
  CpuBackend cpu(kernels::table(kernels::Isa::ref), 1, true);
  nn::DecoderBlock block = llama_block(cpu);
  const Tensor x = random_tensor(cpu, {kTokens, kTiny.model}, 10, 2), direction = random_tensor(cpu, {kTokens, kTiny.model}, 11, 2);
  const Values c = values(direction);
  auto loss = [&] {
    double sum = 0;
    Values y = values(run_block(block, x));
    for (size_t i = 0; i < y.size(); i++) sum += y[i] * c[i];
    return sum;
  };
  const double without = loss();

  for (nn::Linear* weight : {&block.attn.q, &block.attn.k, &block.attn.v, &block.mlp.gate, &block.mlp.down}) {
    TestTape tape;
    weight->w.node = tape.leaf();
    active_tape = &tape;
    Tensor y = run_block(block, x);
    active_tape = nullptr;
    double taped = 0;
    Values vy = values(y);
    for (size_t i = 0; i < vy.size(); i++) taped += vy[i] * c[i];
    CHECK(taped == doctest::Approx(without).epsilon(1e-5));   // the fused ops and their reference composition agree
    tape.backward(y, c);
    const Values& gradient = tape.gradients.at(weight->w.node);
    REQUIRE(int64_t(gradient.size()) == weight->w.elements());
    weight->w.node = nullptr;

    double largest = 0;
    for (double g : gradient) largest = std::max(largest, std::fabs(g));
    REQUIRE(largest > 0.01);
    for (size_t i = 0; i < gradient.size(); i += 7) {
      float& w = weight->w.data()[i];
      const float before = w, step = 1e-2f;          // f32: rounding of the loss / step stays near 1e-4
      w = before + step;
      const double up = loss();
      w = before - step;
      const double down = loss();
      w = before;
      CHECK(std::fabs((up - down) / (2 * double(step)) - gradient[i]) < 2e-3 * largest + 1e-3);
    }
  }
}

TEST_CASE("block: runs on a second device with memory of its own") {
  CpuBackend cpu(kernels::table(kernels::Isa::ref), 1, true);
  ToyDevice toy;
  {
    const nn::DecoderBlock on_cpu = llama_block(cpu), on_toy = llama_block(toy);
    const Values a = values(run_block(on_cpu, random_tensor(cpu, {kTokens, kTiny.model}, 10, 2)));
    const Values b = values(run_block(on_toy, random_tensor(toy, {kTokens, kTiny.model}, 10, 2)));
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); i++) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-4));
    CHECK(toy.calls >= 8);
  }
  CHECK(toy.live == 0);
}

TEST_CASE("block: a step of decoding has four fork-joins, and one for its attention where that is deep") {
  constexpr Sizes z{576, 9, 3, 64, 1536};
  constexpr int kDepth = 400;
  const char* error = nullptr;
  CpuBackend device(*kernels::choose(nullptr, &error), 2, false);
  const nn::DecoderBlock block = llama_block(device, z);
  const nn::StateMemory::LayerSpec layer{z.kv_heads, z.head, z.head};
  nn::StateMemory memory(device, {&layer, 1}, Dtype::f16, 0);
  nn::State state(memory, kDepth + 1);
  const Tensor x = random_tensor(device, {kDepth, z.model}, 10, 2);
  const auto fork_joins = [&](const Tensor& rows, int position) {
    const uint64_t before = device.fork_joins();
    run_block(block, rows, state, position);
    return device.fork_joins() - before;
  };
  CHECK(fork_joins(x.slice(0, 0, 1), 0) == 4);       // q, k, v; out; gate, up; down
  fork_joins(x, 0);
  CHECK(fork_joins(x.slice(0, 0, 1), kDepth) == 5);
}
