#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "models/models.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/mapping.h"
#include "src/io/safetensors.h"
#include "src/tensor/cpu_backend.h"
#include "tests/alloc_count.h"
#include "tests/fixtures.h"

using namespace tealight;

namespace {

constexpr const char* kModels[] = {
    "falcon_7b", "falcon_new", "gemma", "gemma2", "gemma2_scalar", "gemma3_custom", "gemma3_text", "glm4", "gpt2", "gpt_bigcode",
    "gpt_neox", "granite", "llama", "llama_bf16", "llama_bias_tied", "llama_f16", "llama_k256", "llama_linear_rope", "llama_rope3",
    "llama_sharded", "llama_yarn", "mistral_headdim", "mistral_swa", "mixtral", "olmo2", "phi", "phi3", "phi3_longrope", "qwen2",
    "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "smollm3_custom", "stablelm", "starcoder2"};

std::string text_of(const std::string& path) { return std::string(Mapping::open(path)->text()); }

// --- loading -----------------------------------------------------------------------------------------------------------

struct Loaded {
  std::unique_ptr<CpuBackend> device;
  nn::Decoder decoder;
};

template <class File>
Loaded load(std::shared_ptr<const File> file, bool int8) {
  const char* error = nullptr;
  const kernels::Table* table = kernels::choose(std::getenv("TEALIGHT_ISA"), &error);
  REQUIRE(table);
  Loaded m{std::make_unique<CpuBackend>(*table, 1, int8), {}};
  models::Source source(std::move(file), *m.device);
  const models::Architecture* a = models::find_architecture(source);
  if (!a) fail(Code::unsupported, "architecture ", quoted(source.architecture()), " is not known");
  m.decoder = a->load(source);
  return m;
}

Loaded load_gguf(const std::string& path, bool int8 = false) { return load(std::make_shared<const Gguf>(Gguf::open(path)), int8); }

Loaded load_hf(const std::string& path, bool legacy = false) {
  HfCheckpoint hf = HfCheckpoint::open(path);
  const std::string old = path + "/config.legacy.json";
  if (legacy) hf.config = JsonDoc::parse(text_of(old), old, true);
  return load(std::make_shared<const HfCheckpoint>(std::move(hf)), false);
}

// --- expected values ---------------------------------------------------------------------------------------------------

class Golden {
 public:
  explicit Golden(const std::string& path) : file_(Safetensors::open(path)) {}
  bool has(const std::string& name) const { return file_.weights.find(name) != nullptr; }
  std::vector<float> floats(const std::string& name) const { return values<float, float>(name, Dtype::f32); }
  std::vector<int32_t> ids(const std::string& name) const { return values<int32_t, int64_t>(name, Dtype::i64); }

 private:
  template <class To, class From>
  std::vector<To> values(const std::string& name, Dtype dtype) const {
    const WeightView* v = file_.weights.find(name);
    REQUIRE(v);
    REQUIRE(v->dtype == dtype);
    std::vector<To> out;
    for (uint64_t i = 0; i < v->elements(); i++) {
      From x;
      std::memcpy(&x, v->data + i * sizeof x, sizeof x);
      out.push_back(To(x));
    }
    return out;
  }
  Safetensors file_;
};

double max_abs_diff(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); i++) {
    if (!std::isfinite(a[i])) return INFINITY;
    worst = std::max(worst, std::fabs(double(a[i]) - double(b[i])));
  }
  return worst;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// --- evaluation --------------------------------------------------------------------------------------------------------

bool uses_long(const Loaded& m, size_t tokens) { return m.decoder.has_long_rope() && int64_t(tokens) > m.decoder.original_context(); }

// Logits [n, vocab] of one sequence, evaluated `batch` tokens at a time.
std::vector<float> logits(const Loaded& m, const std::vector<int32_t>& ids, size_t batch, const nn::LayerProbe& probe = {}) {
  nn::StateMemory memory(*m.device, m.decoder.state_layers(), Dtype::f32, int(batch));
  nn::State state(memory, int(ids.size()));
  std::vector<AttentionRow> rows;
  std::vector<float> all;
  for (size_t from = 0; from < ids.size(); from += batch) {
    const size_t n = std::min(batch, ids.size() - from);
    std::vector<int32_t> positions(n);
    for (size_t i = 0; i < n; i++) positions[i] = int32_t(from + i);
    std::vector<nn::State*> states(n, &state);
    nn::Batch b{{ids.data() + from, n}, positions, states, rows};
    const std::vector<float> y = m.decoder.logits(m.decoder.hidden(b, uses_long(m, ids.size()), probe)).to_vector();
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

// Two sequences in one batch, their rows alternating.
std::array<std::vector<float>, 2> logits_of_two(const Loaded& m, const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  REQUIRE(a.size() == b.size());
  nn::StateMemory memory(*m.device, m.decoder.state_layers(), Dtype::f32, 0);
  nn::State sa(memory, int(a.size())), sb(memory, int(b.size()));
  std::vector<int32_t> ids, positions;
  std::vector<nn::State*> states;
  for (size_t i = 0; i < a.size(); i++) {
    ids.insert(ids.end(), {a[i], b[i]});
    positions.insert(positions.end(), 2, int32_t(i));
    states.insert(states.end(), {&sa, &sb});
  }
  std::vector<AttentionRow> rows;
  const std::vector<float> y = m.decoder.logits(m.decoder.hidden({ids, positions, states, rows}, uses_long(m, a.size()))).to_vector();
  std::array<std::vector<float>, 2> out;
  const auto vocab = std::ptrdiff_t(m.decoder.vocab());
  for (size_t r = 0; r < ids.size(); r++) {
    const auto begin = y.begin() + std::ptrdiff_t(r) * vocab;
    out[r % 2].insert(out[r % 2].end(), begin, begin + vocab);
  }
  return out;
}

std::vector<int32_t> reversed(std::vector<int32_t> v) {
  std::reverse(v.begin(), v.end());
  return v;
}

// The same bits for one token at a time, for seven and for all at once, and beside another sequence.
void check_batches(const Loaded& m, const std::vector<int32_t>& ids, const std::vector<float>& whole) {
  CHECK(same_bits(logits(m, ids, 1), whole));
  CHECK(same_bits(logits(m, ids, 7), whole));
  const std::vector<int32_t> other = reversed(ids);
  const auto [a, b] = logits_of_two(m, ids, other);
  CHECK(same_bits(a, whole));
  CHECK(same_bits(b, logits(m, other, other.size())));
}

// --- checks of one float model -------------------------------------------------------------------------------------------

void check_hidden(const Loaded& m, const Golden& g, const std::vector<int32_t>& ids) {
  std::vector<std::vector<float>> seen;
  nn::LayerProbe probe{[](void* context, int, const Tensor& h) { static_cast<decltype(seen)*>(context)->push_back(h.to_vector()); }, &seen};
  logits(m, ids, ids.size(), probe);
  REQUIRE(seen.size() == m.decoder.blocks.size() + 1);
  for (size_t i = 0; i < seen.size(); i++) {
    const std::string name = i ? cat("hidden.", i - 1) : "hidden.embed";
    INFO(name);
    const std::vector<float> expected = g.floats(name);
    float largest = 0;
    for (float v : expected) largest = std::max(largest, std::fabs(v));
    CHECK(max_abs_diff(seen[i], expected) <= 1e-3 * double(largest));
  }
}

// The most probable token after every prefix is the reference's next one. Where the rotation depends on the length of the
// sequence, each prefix is evaluated on its own; else one pass has all of them.
void check_greedy(const Loaded& m, const Golden& g, std::vector<int32_t> ids) {
  const size_t prompt = ids.size();
  const std::vector<int32_t> expected = g.ids("greedy_ids");
  ids.insert(ids.end(), expected.begin(), expected.end());
  const auto vocab = std::ptrdiff_t(m.decoder.vocab());
  std::vector<float> y;
  for (size_t i = 0; i < expected.size(); i++) {
    const bool alone = m.decoder.has_long_rope();
    if (alone || !i) y = logits(m, alone ? std::vector<int32_t>(ids.begin(), ids.begin() + std::ptrdiff_t(prompt + i)) : ids, ids.size());
    const auto row = y.begin() + std::ptrdiff_t(prompt + i - 1) * vocab;
    CHECK(std::max_element(row, row + vocab) - row == expected[i]);
  }
}

void check_float(const Loaded& m, const Golden& g, const std::string& prefix) {
  const std::vector<int32_t> ids = g.ids(prefix + "input_ids");
  const std::vector<float> y = logits(m, ids, ids.size());
  CHECK(max_abs_diff(y, g.floats(prefix + "logits")) <= 2e-3);
  check_batches(m, ids, y);
}

}  // namespace

TEST_CASE("models: logits, hidden states and continuations are the reference's, from Hugging Face folders and F32 GGUF") {
  size_t checked = 0;
  for (const char* name : kModels) {
    CAPTURE(name);
    std::string folder = fixture(cat("models/", name, "/model.safetensors"));
    if (folder.empty()) folder = fixture(cat("models/", name, "/model.safetensors.index.json"));
    const std::string golden = fixture(cat("models/", name, "/golden.safetensors")), gguf = fixture(cat("gguf/", name, ".F32.gguf"));
    if (golden.empty()) continue;
    const Golden g(golden);
    const std::string dir = folder.substr(0, folder.rfind('/'));
    for (int form = 0; form < 3; form++) {
      if (form < 2 ? folder.empty() : gguf.empty()) continue;
      CAPTURE(form);                                 // config.json, config.legacy.json, GGUF
      const Loaded m = form < 2 ? load_hf(dir, form == 1) : load_gguf(gguf);
      check_float(m, g, "");
      check_hidden(m, g, g.ids("input_ids"));
      check_greedy(m, g, g.ids("input_ids"));
      for (int i = 1; g.has(cat("long", i, ".input_ids")); i++) check_float(m, g, cat("long", i, "."));
      checked++;
    }
  }
  CHECK(checked >= 40);
}

TEST_CASE("models: quantized GGUF files give the logits of their dequantized weights") {
  struct Row {
    std::string file;
    double ours, theirs;
  };
  std::vector<Row> table;
  for (const char* name : kModels) {
    const std::string index = fixture(cat("gguf/", name, ".json"));
    if (index.empty()) continue;
    const JsonDoc doc = JsonDoc::parse(text_of(index), index);
    for (auto [type, entry] : doc["quantised"].members()) {
      const std::string file(entry["file"].string("file"));
      CAPTURE(file);
      const std::string path = fixture(cat("gguf/", file)), golden = fixture(cat("gguf/", entry["golden"].string("golden")));
      if (path.empty() || golden.empty()) continue;
      const Golden g(golden);
      const std::vector<int32_t> ids = g.ids("input_ids");
      const std::vector<float> expected = g.floats("logits");
      const Loaded m = load_gguf(path);
      const std::vector<float> y = logits(m, ids, ids.size());
      CHECK(max_abs_diff(y, expected) <= 2e-3);
      check_batches(m, ids, y);

      const Loaded with_int8 = load_gguf(path, true);
      const std::vector<float> z = logits(with_int8, ids, ids.size());
      check_batches(with_int8, ids, z);
      if (type == "F16" || type == "BF16") CHECK(max_abs_diff(z, expected) <= 2e-3);
      else if (Json theirs = entry["llama_cpp_max_abs_diff_from_this_golden"]; theirs.is_number())
        table.push_back({file, max_abs_diff(z, expected), theirs.number("llama_cpp")});
    }
  }
  // How far int8 activations move the logits, beside what another engine with such activations was measured to do.
  REQUIRE(!table.empty());
  double log_sum = 0;
  for (const Row& r : table) {
    const double ratio = r.ours / r.theirs;
    log_sum += std::log(ratio);
    std::fprintf(stderr, "int8 activations: %-32s %8.4f %8.4f  ratio %.2f\n", r.file.c_str(), r.ours, r.theirs, ratio);
    CAPTURE(r.file);
    CHECK(ratio <= 1.5);
  }
  const double mean = std::exp(log_sum / double(table.size()));
  std::fprintf(stderr, "int8 activations: geometric mean of the ratios of %zu files: %.3f\n", table.size(), mean);
  CHECK(mean <= 1);
}

TEST_CASE("models: checkpoints of bare models, and those inside of a larger one") {
  for (const char* name : {"granite", "gpt2", "gemma3_custom"}) {
    CAPTURE(name);
    const std::string from = fixture(cat("models/", name));
    REQUIRE(!from.empty());
    const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
    const std::vector<float> whole = logits(load_hf(from), ids, ids.size());
    char dir[] = "/tmp/tealight_models_XXXXXX";
    REQUIRE(mkdtemp(dir));
    const std::string config = cat(dir, "/config.json"), weights = cat(dir, "/model.safetensors");
    for (std::string_view prefix : {"", "language_model.model.", "model.language_model."}) {
      if (std::string_view(name) == "gpt2" && !prefix.empty()) continue;
      {
        const Safetensors file = Safetensors::open(from + "/model.safetensors");
        std::vector<SafetensorsWriter::Declared> declared;
        for (const WeightView& v : file.weights.all())
          declared.push_back({cat(prefix, v.name.substr(v.name.find('.') + 1)), v.dtype, {v.shape, v.shape + v.rank}});
        SafetensorsWriter w(weights, declared);
        for (const WeightView& v : file.weights.all()) w.write(v.data, v.bytes);
        w.finish();
        OutputFile c(config);
        const std::string text = text_of(from + "/config.json");
        c.write(text.data(), text.size());
        c.finish();
      }
      CHECK(same_bits(logits(load_hf(dir), ids, ids.size()), whole));
    }
    ::unlink(config.c_str());
    ::unlink(weights.c_str());
    ::rmdir(dir);
  }
}

TEST_CASE("models: a later token changes nothing before it") {
  const std::string path = fixture("models/qwen2_moe");
  REQUIRE(!path.empty());
  const Loaded m = load_hf(path);
  std::vector<float> a = logits(m, {1, 2, 3, 4}, 4), b = logits(m, {1, 2, 3, 9}, 4);
  CHECK(!same_bits(a, b));
  a.resize(size_t(3 * m.decoder.vocab()));
  b.resize(a.size());
  CHECK(same_bits(a, b));
}

TEST_CASE("models: which positions a row sees") {
  const std::vector<nn::StateMemory::LayerSpec> layers = {{1, 2, 2}};
  CpuBackend device(kernels::table(kernels::Isa::ref), 1, false);
  nn::StateMemory memory(device, layers, Dtype::f32, 0);
  nn::State state(memory, 16);
  const std::vector<int32_t> ids(4, 0), positions = {0, 1, 2, 3};
  const std::vector<nn::State*> states(4, &state);
  std::vector<AttentionRow> scratch;
  auto first = [&](std::span<const int32_t> p, int window) {
    const nn::Batch b{{ids.data(), p.size()}, p, {states.data(), p.size()}, scratch};
    std::vector<int32_t> v;
    for (const AttentionRow& r : b.rows(0, window)) v.push_back(r.first);
    return v;
  };
  CHECK(first(positions, 0) == std::vector<int32_t>{0, 0, 0, 0});
  CHECK(first(positions, 2) == std::vector<int32_t>{0, 0, 1, 2});      // itself and one before
  CHECK(first(positions, 1) == std::vector<int32_t>{0, 1, 2, 3});
  const std::vector<int32_t> continued = {2, 3};                       // two new rows after two in the cache
  CHECK(first(continued, 0) == std::vector<int32_t>{0, 0});
  CHECK(first(continued, 3) == std::vector<int32_t>{0, 1});
}

TEST_CASE("rope: pairs of neighbours and pairs across the halves") {
  const char* error = nullptr;
  CpuBackend device(*kernels::choose(nullptr, &error), 1, false);
  const std::vector<float> x = {1, 2, 3, 4};
  const std::vector<int32_t> at = {1};
  for (bool neox : {false, true}) {
    const nn::Rope r = nn::Rope::plain(4, 1e4, neox);
    Tensor cos, sin;
    r.table(device, at, false, cos, sin);
    const std::vector<float> y = rope(Tensor::from(device, x, {1, 1, 4}), cos, sin, neox).to_vector();
    const std::vector<float> expected = neox ? std::vector<float>{-1.984111f, 1.959901f, 2.462378f, 4.019800f}
                                             : std::vector<float>{-1.142640f, 1.922076f, 2.959851f, 4.029800f};
    CHECK(max_abs_diff(y, expected) < 2e-6);
  }
}

TEST_CASE("rope: the factors of Llama 3.2") {
  const nn::Rope plain = nn::Rope::plain(64, 5e5, true);
  nn::Rope scaled = plain;
  scaled.llama3(32, 1, 4, 8192);
  std::vector<double> expected(15, 1.0);
  expected.insert(expected.end(), {1.65133, 3.29226, 9.66673});
  expected.resize(32, 32.0);
  for (size_t i = 0; i < 32; i++) CHECK(plain.inv_freq[i] / scaled.inv_freq[i] == doctest::Approx(expected[i]).epsilon(1e-5));
}

TEST_CASE("attention: a norm with a weight for each head") {
  const std::string path = fixture("models/stablelm");
  REQUIRE(!path.empty());
  Loaded m = load_hf(path);
  const std::vector<int32_t> ids = {5, 6, 7, 8, 9};
  nn::SelfAttention& a = m.decoder.blocks[0].attn;
  const int heads = a.spec.heads, d = a.spec.d;
  auto weight = [&](int n, bool differ) {
    std::vector<float> w;
    for (int h = 0; h < n; h++)
      for (int i = 0; i < d; i++) w.push_back(1.0f + 0.1f * float(i) + (differ ? float(h) : 0));
    return w;
  };
  auto with = [&](bool one_each, bool differ) {
    for (auto [norm, n] : {std::pair{&a.q_norm, heads}, {&a.k_norm, a.spec.kv_heads}}) {
      norm->on = norm->layer = true;
      norm->w = one_each ? Tensor::from(*m.device, weight(n, differ), {n, d}) : Tensor::from(*m.device, weight(1, false), {d});
    }
    return logits(m, ids, ids.size());
  };
  const std::vector<float> shared = with(false, false);
  CHECK(max_abs_diff(with(true, false), shared) < 1e-4);
  CHECK(max_abs_diff(with(true, true), shared) > 1e-2);
}

TEST_CASE("models: damaged files are refused for what is wrong with them, at once") {
  struct Case {
    const char *path, *cause;
  };
  constexpr Case cases[] = {
      {"gguf_hostile/no_architecture.gguf", "general.architecture is missing"},
      {"gguf_hostile/unknown_architecture.gguf", "architecture \"nosuch\" is not known"},
      {"gguf_hostile/architecture_is_number.gguf", "general.architecture"},
      {"gguf_hostile/no_block_count.gguf", "llama.block_count is missing"},
      {"gguf_hostile/block_count_string.gguf", "llama.block_count"},
      {"gguf_hostile/block_count_2.gguf", "blk.1.attn_norm.weight is missing"},
      {"gguf_hostile/block_count_huge.gguf", "the number of layers is 4294967295"},
      {"gguf_hostile/head_count_0.gguf", "the number of heads is 0"},
      {"gguf_hostile/head_count_kv_not_divisor.gguf", "3 K/V heads"},
      {"gguf_hostile/head_count_not_divisor.gguf", "not a multiple of 5 heads"},
      {"gguf_hostile/embedding_length_0.gguf", "the embedding length is 0"},
      {"gguf_hostile/embedding_length_lies.gguf", "token_embd.weight is [272, 32], expected [272, 64]"},
      {"gguf_hostile/rope_dim_too_large.gguf", "rope over 4096 of 16"},
      {"gguf_hostile/no_rms_epsilon.gguf", "layer_norm_rms_epsilon is missing"},
      {"gguf_hostile/missing_tensor.gguf", "output_norm.weight is missing"},
      {"gguf_hostile/wrong_shape.gguf", "blk.0.attn_"},
      {"hf_hostile/config_act_unknown", "activation \"nosuch\""},
      {"hf_hostile/config_array", "expected an object"},
      {"hf_hostile/config_deep", "not valid JSON"},
      {"hf_hostile/config_empty", "not valid JSON"},
      {"hf_hostile/config_eps_null", "rms_norm_eps is missing"},
      {"hf_hostile/config_heads_do_not_divide", "3 K/V heads"},
      {"hf_hostile/config_heads_zero", "the number of heads is 0"},
      {"hf_hostile/config_hidden_lies", "model.embed_tokens.weight is [300, 16], expected [300, 64]"},
      {"hf_hostile/config_hidden_negative", "the embedding length is -16"},
      {"hf_hostile/config_hidden_string", "hidden_size: expected an integer"},
      {"hf_hostile/config_layers_huge", "the number of layers is 2147483647"},
      {"hf_hostile/config_not_json", "not valid JSON"},
      {"hf_hostile/config_rope_unknown", "rope type \"nosuch\""},
      {"hf_hostile/config_unknown_type", "architecture \"nosuch\" is not known"},
      {"hf_hostile/config_vocab_huge", "vocab_size is 1000000000000"},
      {"hf_hostile/weights_absent", "neither model.safetensors nor"},
      {"hf_hostile/weights_missing_tensor", "model.norm.weight is missing"},
      {"hf_hostile/weights_wrong_dtype", "model.norm.weight is I64"},
      {"hf_hostile/weights_wrong_shape", "model.norm.weight is [17], expected [16]"},
  };
  auto open = [](const std::string& path) { return path.ends_with(".gguf") ? load_gguf(path) : load_hf(path); };
  for (const Case& c : cases) {
    CAPTURE(c.path);
    const std::string path = fixture(cat("formats/", c.path));
    REQUIRE(!path.empty());
    std::string message;
    const uint64_t before = g_allocated_bytes;
    try {
      open(path);
    } catch (const Error& e) {
      message = e.message;
    }
    CHECK(g_allocated_bytes - before < 16'000'000);
    CAPTURE(message);
    CHECK(message.find(c.cause) != message.npos);
  }
  CHECK_NOTHROW(open(fixture("formats/gguf_hostile/base_valid.gguf")));
  CHECK_NOTHROW(open(fixture("formats/hf_hostile/base_valid")));
}
