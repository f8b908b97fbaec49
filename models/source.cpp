#include "models/source.h"

#include <algorithm>
#include <cmath>

#include "src/base/error.h"

namespace tealight::models {
namespace {

// Limits on what a configuration may claim; far above any published model.
constexpr int64_t kMaxWidth = 1 << 24, kMaxLayers = 4096, kMaxHeads = 4096, kMaxHead = 4096, kMaxVocab = 1 << 26;

std::string shape_text(const WeightView& v) {
  std::string s = "[";
  for (int i = 0; i < v.rank; i++) s += cat(i ? ", " : "", v.shape[i]);
  return s + "]";
}

}  // namespace

Source::Source(std::shared_ptr<const Gguf> gguf, Backend& device) : gguf_(std::move(gguf)), device_(device) {
  auto a = gguf_->string("general.architecture");
  if (!a) fail(Code::model, "general.architecture is missing: no language model");
  architecture_ = *a;
}

Source::Source(std::shared_ptr<const HfCheckpoint> hf, Backend& device) : hf_(std::move(hf)), device_(device) {
  config_ = hf_->config.root();
  if (!config_.is_object()) fail(Code::format, "config.json: expected an object, got ", kind_name(config_.kind()));
  if (Json text = config_["text_config"]; text.is_object() && !config_["hidden_size"]) config_ = text;
  architecture_ = config_["model_type"].string("config.json: model_type");
}

const WeightSet& Source::weights() const { return gguf_ ? gguf_->weights() : hf_->weights; }
std::string Source::key(std::string_view g) const { return cat(architecture_, ".", g); }

Json Source::lookup(std::string_view h) const {
  Json v = config_[h];
  return v.is_null() ? Json() : v;
}

int64_t Source::integer(std::string_view g, std::string_view h) const {
  if (gguf_) {
    if (auto v = gguf_->uint(key(g)); v && *v <= uint64_t(INT64_MAX)) return int64_t(*v);
    fail(Code::model, "key ", key(g), " is missing or out of range");
  }
  Json v = lookup(h);
  if (!v) fail(Code::model, "config.json: ", h, " is missing");
  return v.integer(cat("config.json: ", h));
}

int64_t Source::integer(std::string_view g, std::string_view h, int64_t otherwise) const {
  if (gguf_) {
    auto v = g.empty() ? std::nullopt : gguf_->uint(key(g));
    return v && *v <= uint64_t(INT64_MAX) ? int64_t(*v) : otherwise;
  }
  Json v = h.empty() ? Json() : lookup(h);
  return v ? v.integer(cat("config.json: ", h)) : otherwise;
}

double Source::number(std::string_view g, std::string_view h) const {
  if (gguf_) {
    if (auto v = gguf_->number(key(g))) return *v;
    fail(Code::model, "key ", key(g), " is missing");
  }
  Json v = lookup(h);
  if (!v) fail(Code::model, "config.json: ", h, " is missing");
  return v.number(cat("config.json: ", h));
}

double Source::number(std::string_view g, std::string_view h, double otherwise) const {
  if (gguf_) return g.empty() ? otherwise : gguf_->number(key(g)).value_or(otherwise);
  Json v = h.empty() ? Json() : lookup(h);
  return v ? v.number(cat("config.json: ", h)) : otherwise;
}

bool Source::boolean(std::string_view g, std::string_view h, bool otherwise) const {
  if (gguf_) return g.empty() ? otherwise : gguf_->boolean(key(g)).value_or(otherwise);
  Json v = h.empty() ? Json() : lookup(h);
  return v ? v.boolean(cat("config.json: ", h)) : otherwise;
}

Dims Source::dims(const Dims& otherwise) const {
  auto within = [&](const char* what, int64_t v, int64_t limit) {
    if (v <= 0 || v > limit) fail(Code::model, what, " is ", v, ", which is not between 1 and ", limit);
    return v;
  };
  // GPT-2 and its kin call the same numbers n_embd, n_layer, ...
  auto value = [&](const char* g, const char* h, const char* old, int64_t missing) {
    const char* k = gguf_ || lookup(h) || !lookup(old) ? h : old;
    return missing ? integer(g, k, missing) : integer(g, k);
  };
  auto either = [](int64_t a, int64_t b) { return a ? a : b; };
  Dims d;
  d.model = within("the embedding length", value("embedding_length", "hidden_size", "n_embd", otherwise.model), kMaxWidth);
  d.layers = within("the number of layers", value("block_count", "num_hidden_layers", "n_layer", otherwise.layers), kMaxLayers);
  d.heads = within("the number of heads", value("attention.head_count", "num_attention_heads", "n_head", otherwise.heads), kMaxHeads);
  const int64_t kv_heads = integer("attention.head_count_kv", "num_key_value_heads", either(otherwise.kv_heads, d.heads));
  d.kv_heads = within("the number of K/V heads", kv_heads, kMaxHeads);
  if (d.heads % d.kv_heads) fail(Code::model, d.heads, " heads are not a multiple of ", d.kv_heads, " K/V heads");
  const int64_t key_length = integer("attention.key_length", "head_dim", gguf_ ? 0 : otherwise.head);
  if (!key_length && d.model % d.heads) fail(Code::model, "an embedding length of ", d.model, " is not a multiple of ", d.heads, " heads");
  d.head = within("the head size", key_length ? key_length : d.model / d.heads, kMaxHead);
  if (gguf_ && integer("attention.value_length", "", d.head) != d.head) fail(Code::unsupported, "keys and values of different sizes");
  const int64_t ff = value("feed_forward_length", "intermediate_size", "n_inner", either(otherwise.ff, 4 * d.model));
  d.ff = within("the feed-forward length", ff, kMaxWidth);
  const int64_t context = value("context_length", "max_position_embeddings", "n_positions", either(otherwise.context, 2048));
  d.context = within("the context length", context, INT32_MAX);
  if (gguf_) {
    const WeightView* e = weights().find("token_embd.weight");
    if (!e || e->rank != 2) fail(Code::model, "tensor token_embd.weight is missing or no matrix");
    d.vocab = within("the vocabulary", int64_t(e->shape[0]), kMaxVocab);
  } else {
    d.vocab = within("config.json: vocab_size", value("", "vocab_size", "", otherwise.vocab), kMaxVocab);
  }
  return d;
}

Name Source::at(int64_t layer, std::string_view g, std::string_view h) const {
  return {cat("blk.", layer, ".", g), cat(layers, layer, ".", h)};
}

std::string Source::described(const Name& n, std::string_view suffix) const { return cat(gguf_ ? n.gguf : n.hf, suffix); }

const WeightView* Source::find(const Name& n, std::string_view suffix) const {
  const std::string& base = gguf_ ? n.gguf : n.hf;
  if (base.empty()) return nullptr;
  if (const WeightView* v = weights().find(cat(base, suffix))) return v;
  if (gguf_) return nullptr;
  // Checkpoints of bare models leave out the outermost module ("model.", "transformer.").
  if (size_t dot = base.find('.'); dot != base.npos)
    if (const WeightView* v = weights().find(cat(std::string_view(base).substr(dot + 1), suffix))) return v;
  // Those of models that also see have it around the text model, or inside of the outermost one.
  if (const WeightView* v = weights().find(cat("language_model.", base, suffix))) return v;
  if (base.starts_with("model.")) return weights().find(cat("model.language_model.", std::string_view(base).substr(6), suffix));
  return nullptr;
}

const WeightView& Source::need(const Name& n, std::string_view suffix) const {
  const WeightView* v = find(n, suffix);
  if (!v) fail(Code::model, "tensor ", described(n, suffix), " is missing");
  if (!v->computable) fail(Code::unsupported, "tensor ", v->name, ": type ", v->file_type, " cannot be computed with");
  return *v;
}

bool Source::has(const Name& n, std::string_view suffix) const { return find(n, suffix) != nullptr; }

Tensor Source::as_tensor(const WeightView& v) const {
  Shape s;
  s.rank = v.rank;
  for (int i = 0; i < v.rank; i++) s[i] = int64_t(v.shape[i]);
  return Tensor::view(device_, v.data, s, v.dtype, weights().files()[v.file], v.interleaved);
}

Tensor Source::matrix(const Name& n, int64_t rows, int64_t cols) const {
  const WeightView& v = need(n, ".weight");
  const bool one_row = v.rank == 1 && rows == 1 && int64_t(v.shape[0]) == cols;
  if (!one_row && (v.rank != 2 || int64_t(v.shape[0]) != rows || int64_t(v.shape[1]) != cols))
    fail(Code::model, "tensor ", v.name, " is ", shape_text(v), ", expected [", rows, ", ", cols, "]");
  if (info(v.dtype).family == Family::none) fail(Code::model, "tensor ", v.name, " is ", name(v.dtype), ", which cannot be multiplied");
  return one_row ? as_tensor(v).reshape({1, cols}) : as_tensor(v);
}

Tensor Source::experts(const Name& n, int64_t count, int64_t rows, int64_t cols) const {
  const WeightView& v = need(n, gguf_ ? ".weight" : "");
  if (v.rank != 3 || int64_t(v.shape[0]) != count || int64_t(v.shape[1]) != rows || int64_t(v.shape[2]) != cols)
    fail(Code::model, "tensor ", v.name, " is ", shape_text(v), ", expected [", count, ", ", rows, ", ", cols, "]");
  if (info(v.dtype).family == Family::none) fail(Code::model, "tensor ", v.name, " is ", name(v.dtype), ", which cannot be multiplied");
  return as_tensor(v);
}

Tensor Source::vector(const Name& n, std::string_view suffix, int64_t size) const {
  const WeightView& v = need(n, suffix);
  if (v.elements() != uint64_t(size) || v.rank < 1 || int64_t(v.shape[v.rank - 1]) != size)
    fail(Code::model, "tensor ", v.name, " is ", shape_text(v), ", expected [", size, "]");
  if (!is_float(v.dtype) && info(v.dtype).family == Family::none)
    fail(Code::model, "tensor ", v.name, " is ", name(v.dtype), ", expected a float type");
  const Tensor t = as_tensor(v).reshape({size});
  const bool as_it_is = v.dtype == Dtype::f32 && reinterpret_cast<uintptr_t>(v.data) % alignof(float) == 0;
  return as_it_is ? t : copy(t);
}

nn::Linear Source::linear(const Name& n, int64_t out, int64_t in) const {
  nn::Linear l;
  l.w = matrix(n, out, in);
  if (has(n, ".bias")) l.b = vector(n, ".bias", out);
  return l;
}

nn::Linear Source::linear_transposed(const Name& n, int64_t out, int64_t in) const {
  if (gguf_) return linear(n, out, in);
  nn::Linear l;
  l.w = matrix(n, in, out).transpose(0, 1);
  if (has(n, ".bias")) l.b = vector(n, ".bias", out);
  return l;
}

nn::Norm Source::rms_norm(const Name& n, int64_t size, double eps, float offset) const {
  nn::Norm norm;
  norm.w = vector(n, ".weight", size);
  norm.eps = float(eps);
  norm.offset = offset;
  norm.on = true;
  return norm;
}

nn::Norm Source::layer_norm(const Name& n, int64_t size, double eps) const {
  nn::Norm norm = rms_norm(n, size, eps);
  if (has(n, ".bias")) norm.b = vector(n, ".bias", size);
  norm.layer = true;
  return norm;
}

nn::Linear Source::rows(const nn::Linear& l, int64_t begin, int64_t end) {
  nn::Linear part;
  part.w = l.w.slice(0, begin, end);
  if (l.b) part.b = l.b.slice(0, begin, end);
  return part;
}

Json Source::rope_parameters(std::string_view layer_type) const {
  Json p = lookup("rope_parameters");
  if (Json of_type = p[layer_type]; of_type.is_object()) return of_type;
  return p.is_object() ? p : lookup("rope_scaling");   // the older key, with the base beside it
}

double Source::rope_base(double otherwise) const {
  const Json theta = rope_parameters("full_attention")["rope_theta"];
  const double base = gguf_   ? number("rope.freq_base", "", otherwise)
                      : theta ? theta.number("config.json: rope_theta")
                              : number("", lookup("rope_theta") ? "rope_theta" : "rotary_emb_base", otherwise);
  if (!(base > 0) || !std::isfinite(base)) fail(Code::model, "a rope base of ", base);
  return base;
}

nn::Rope Source::rope(int64_t rotated, int64_t head, bool neox, double default_base) const {
  if (rotated <= 0 || rotated % 2 || rotated > head) fail(Code::model, "rope over ", rotated, " of ", head, " values");
  const double base = rope_base(default_base);
  nn::Rope r = nn::Rope::plain(int(rotated), base, neox);
  if (gguf_) scale_rope_gguf(r, base);
  else scale_rope(r, base, rope_parameters("full_attention"));
  return r;
}

namespace {

// The magnitude that YaRN gives to cos and sin for a factor (its section 3.4).
double yarn_magnitude(double factor, double m = 1) { return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1; }

}  // namespace

void Source::scale_rope(nn::Rope& r, double base, Json p) const {
  if (!p.is_object()) return;
  Json type_value = p["rope_type"] ? p["rope_type"] : p["type"];
  if (!type_value || type_value.is_null()) return;
  const std::string_view type = type_value.string("config.json: rope_type");
  auto value = [&](std::string_view k) { return p[k].number(cat("config.json: rope parameter ", k)); };
  auto value_or = [&](std::string_view k, double otherwise) { return p[k] && !p[k].is_null() ? value(k) : otherwise; };
  const double original = value_or("original_max_position_embeddings",
                                   number("", "original_max_position_embeddings", number("", "max_position_embeddings", 2048)));
  if (type == "default") return;
  if (type == "linear") return r.linear(value("factor"));
  if (type == "llama3") return r.llama3(value("factor"), value("low_freq_factor"), value("high_freq_factor"), original);
  if (type == "yarn") {
    const double factor = value("factor");
    double m = yarn_magnitude(factor);
    if (p["mscale"].is_number() && p["mscale_all_dim"].is_number())
      m = yarn_magnitude(factor, value("mscale")) / yarn_magnitude(factor, value("mscale_all_dim"));
    Json truncate = p["truncate"];
    return r.yarn(base, factor, original, value_or("beta_fast", 32), value_or("beta_slow", 1), !truncate || truncate.boolean("config.json: truncate"),
                  value_or("attention_factor", m));
  }
  if (type == "longrope" || type == "su") {
    auto factors = [&](std::string_view k) {
      std::vector<float> f;
      for (Json e : p[k].elements()) f.push_back(float(e.number(cat("config.json: ", k))));
      if (f.size() != r.inv_freq.size()) fail(Code::model, "config.json: ", k, " has ", f.size(), " values, expected ", r.inv_freq.size());
      return f;
    };
    nn::Rope extended = r;
    extended.divide(factors("long_factor"));
    r.divide(factors("short_factor"));
    r.inv_freq_long = extended.inv_freq;
    r.original = int(std::clamp(original, 1.0, 1e9));
    const double factor = value_or("factor", number("", "max_position_embeddings", original) / original);
    const double m = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
    r.magnitude = r.magnitude_long = float(value_or("attention_factor", m));
    return;
  }
  fail(Code::unsupported, "config.json: rope type ", quoted(type), " is not known");
}

void Source::scale_rope_gguf(nn::Rope& r, double base) const {
  const int64_t half = int64_t(r.inv_freq.size());
  const double original = number("rope.scaling.original_context_length", "", double(integer("context_length", "", 2048)));
  if (Name f{"rope_freqs", ""}; has(f)) r.divide(vector(f, ".weight", half).to_vector());
  if (Name l{"rope_factors_long", ""}, s{"rope_factors_short", ""}; has(l) && has(s)) {
    nn::Rope extended = r;
    extended.divide(vector(l, ".weight", half).to_vector());
    r.divide(vector(s, ".weight", half).to_vector());
    r.inv_freq_long = extended.inv_freq;
    r.original = int(std::clamp(original, 1.0, 1e9));
    r.magnitude = r.magnitude_long = float(number("rope.scaling.attn_factor", "", 1));
    return;
  }
  const auto type = gguf_->string(key("rope.scaling.type")).value_or("none");
  const double factor = number("rope.scaling.factor", "", number("rope.scale_linear", "", 1));
  if (!(factor > 0)) fail(Code::model, "a rope scaling factor of ", factor);
  if (type == "yarn") {
    r.yarn(base, factor, original, number("rope.scaling.yarn_beta_fast", "", 32), number("rope.scaling.yarn_beta_slow", "", 1), true,
           yarn_magnitude(factor) * number("rope.scaling.attn_factor", "", 1));
  } else if (type == "linear" || (type == "none" && factor != 1)) {
    r.linear(factor);
  } else if (type != "none" && type != "longrope") {
    fail(Code::unsupported, "rope scaling of type ", quoted(type), " is not known");
  }
}

int64_t Source::rotated(int64_t head, double part) const {
  if (gguf_) return integer("rope.dimension_count", "", head);
  const Json p = rope_parameters("full_attention")["partial_rotary_factor"];
  part = p ? p.number("config.json: partial_rotary_factor")
           : number("", lookup("rotary_pct") ? "rotary_pct" : "partial_rotary_factor", part);
  if (!(part > 0 && part <= 1)) fail(Code::model, "config.json: a partial_rotary_factor of ", part);
  return int64_t(double(head) * part);
}

int Source::window(int64_t layer, int64_t size, int64_t pattern) const {
  if (size < 0 || size > INT32_MAX) fail(Code::model, "a sliding window of ", size);
  if (Json types = gguf_ ? Json() : lookup("layer_types"); types.is_array()) {
    const std::string_view t = types[size_t(layer)].string(cat("config.json: layer_types[", layer, "]"));
    if (t == "full_attention") return 0;
    if (t != "sliding_attention") fail(Code::unsupported, "config.json: layer type ", quoted(t));
    if (!size) fail(Code::model, "config.json: layer ", layer, " slides, but sliding_window is missing");
    return int(size);
  }
  if (gguf_) {
    if (GgufValue v = gguf_->find(key("attention.sliding_window_pattern")); v.is_array) {   // one flag a layer
      if (v.type != GgufType::boolean || uint64_t(layer) >= v.count)
        fail(Code::model, "key ", key("attention.sliding_window_pattern"), " is no array with a flag for layer ", layer);
      return v.data[layer] != std::byte(0) ? int(size) : 0;
    }
  }
  const char* named = lookup("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
  pattern = integer("attention.sliding_window_pattern", named, pattern);
  return pattern > 0 && (layer + 1) % pattern == 0 ? 0 : int(size);
}

Activation Source::activation(std::string_view default_name) const {
  std::string_view a = default_name;
  for (std::string_view k : {"hidden_activation", "hidden_act", "activation_function", "activation"})
    if (Json v = gguf_ ? Json() : lookup(k); v) {
      a = v.string(cat("config.json: ", k));
      break;
    }
  if (a == "silu" || a == "swish") return Activation::silu;
  if (a == "gelu") return Activation::gelu_erf;
  if (a == "gelu_new" || a == "gelu_pytorch_tanh" || a == "gelu_fast" || a == "gelu_python_tanh") return Activation::gelu_tanh;
  if (a == "relu") return Activation::relu;
  if (a == "relu2" || a == "relu_squared") return Activation::relu_squared;
  fail(Code::unsupported, "activation ", quoted(a), " is not known");
}

void Source::embedding_and_head(nn::Decoder& d, const Dims& dims, std::string_view hf_embedding, std::string_view hf_head) const {
  d.blocks.reserve(size_t(std::min<int64_t>(dims.layers, 256)));   // they come next, and are large
  d.embedding = matrix({"token_embd", std::string(hf_embedding)}, dims.vocab, dims.model);
  const Name head{"output", std::string(hf_head)};
  if (has(head)) {
    d.head = linear(head, dims.vocab, dims.model);
  } else {
    if (!gguf_ && !boolean("", "tie_word_embeddings", true)) need(head, ".weight");
    d.head.w = d.embedding;
    if (has(head, ".bias")) d.head.b = vector(head, ".bias", dims.vocab);
  }
  d.context = int(dims.context);
}

namespace {

nn::SelfAttention attention_of(const Dims& d) {
  nn::SelfAttention a;
  a.spec = {int(d.heads), int(d.kv_heads), int(d.head), int(d.head), float(1 / std::sqrt(double(d.head))), 0};
  a.rope = 0;
  return a;
}

}  // namespace

nn::SelfAttention self_attention(const Source& s, const Dims& d, int64_t layer, std::string_view hf_out) {
  nn::Linear out = s.linear(s.at(layer, "attn_output", hf_out), d.model, d.heads * d.head);
  if (Name qkv{s.at(layer, "attn_qkv", "").gguf, ""}; s.gguf() && s.has(qkv))
    return fused_attention(d, s.linear(qkv, qkv_rows(d), d.model), false, std::move(out));
  nn::SelfAttention a = attention_of(d);
  a.q = s.linear(s.at(layer, "attn_q", "self_attn.q_proj"), d.heads * d.head, d.model);
  a.k = s.linear(s.at(layer, "attn_k", "self_attn.k_proj"), d.kv_heads * d.head, d.model);
  a.v = s.linear(s.at(layer, "attn_v", "self_attn.v_proj"), d.kv_heads * d.head, d.model);
  a.out = std::move(out);
  return a;
}

nn::SelfAttention fused_attention(const Dims& d, const nn::Linear& qkv, bool grouped, nn::Linear out) {
  nn::SelfAttention a = attention_of(d);
  a.out = std::move(out);
  const int64_t q = d.heads * d.head, kv = d.kv_heads * d.head;
  if (grouped) {
    a.grouped = qkv;
  } else {
    a.q = Source::rows(qkv, 0, q);
    a.k = Source::rows(qkv, q, q + kv);
    a.v = Source::rows(qkv, q + kv, q + 2 * kv);
  }
  return a;
}

nn::Mlp gated_mlp(const Source& s, const Dims& d, int64_t layer, Activation act) {
  nn::Mlp m;
  m.gate = s.linear(s.at(layer, "ffn_gate", "mlp.gate_proj"), d.ff, d.model);
  m.up = s.linear(s.at(layer, "ffn_up", "mlp.up_proj"), d.ff, d.model);
  m.down = s.linear(s.at(layer, "ffn_down", "mlp.down_proj"), d.model, d.ff);
  m.act = act;
  return m;
}

nn::Mlp fused_mlp(const Source& s, const Dims& d, int64_t layer, Activation act) {
  const nn::Linear both = s.linear(s.at(layer, "ffn_up", "mlp.gate_up_proj"), 2 * d.ff, d.model);
  nn::Mlp m;
  m.gate = Source::rows(both, 0, d.ff);
  m.up = Source::rows(both, d.ff, 2 * d.ff);
  m.down = s.linear(s.at(layer, "ffn_down", "mlp.down_proj"), d.model, d.ff);
  m.act = act;
  return m;
}

nn::Mlp plain_mlp(const Source& s, const Dims& d, int64_t layer, Activation act, std::string_view hf_up, std::string_view hf_down) {
  nn::Mlp m;
  m.up = s.linear(s.at(layer, "ffn_up", hf_up), d.ff, d.model);
  m.down = s.linear(s.at(layer, "ffn_down", hf_down), d.model, d.ff);
  m.act = act;
  return m;
}

}  // namespace tealight::models
