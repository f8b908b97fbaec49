// Gemma (arXiv 2403.08295): scaled embeddings, norms that multiply by 1 + w, gelu gates. Gemma 2 (arXiv 2408.00118): soft caps,
// every other layer slides, norms after both halves. Gemma 3 (arXiv 2503.19786): norms of queries and keys instead of the
// soft caps, five sliding layers to a global one, with a rope base of their own that no scaling touches.
#include <cmath>

#include "models/models.h"
#include "src/base/error.h"

namespace tealight::models {
namespace {

// The first configs say gelu and mean its tanh form.
Activation activation(const Source& s) {
  const Activation a = s.activation("gelu_pytorch_tanh");
  return a == Activation::gelu_erf ? Activation::gelu_tanh : a;
}

struct Reader {
  const Source& s;
  Dims d;
  double eps;
  // GGUF files have the 1 added already.
  nn::Norm norm(const Name& n, int64_t size) const { return s.rms_norm(n, size, eps, s.gguf() ? 0 : 1); }

  nn::Decoder begin(double rope_base = 1e4) const {
    if (s.boolean("", "use_bidirectional_attention", false)) fail(Code::unsupported, "config.json: use_bidirectional_attention");
    nn::Decoder m;
    s.embedding_and_head(m, d, "model.embed_tokens", "lm_head");
    m.embedding_scale = float(std::sqrt(double(d.model)));
    m.final_norm = norm({"output_norm", "model.norm"}, d.model);
    m.ropes.push_back(s.rope(d.head, d.head, true, rope_base));
    return m;
  }
};

Reader reader(const Source& s, const Dims& otherwise = {}) {
  return {s, s.dims(otherwise), s.number("attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-6)};
}

// A cap that the config sets to null is none; one that it does not mention has the value of the report.
float softcap(const Source& s, const char* key, double otherwise) {
  return float(s.config()[key].is_null() ? 0 : s.number(key, key, otherwise));
}

// Queries are divided by the square root of query_pre_attn_scalar. GGUF lacks it: it is the head size, but for the largest
// model of each series, which is known by its number of layers.
float query_scale(const Source& s, const Dims& d, int64_t layers_of_largest) {
  const double by_size = double(d.layers == layers_of_largest ? d.model / d.heads : d.head);
  const double scalar = s.number("", "query_pre_attn_scalar", s.gguf() ? by_size : 256);
  if (!(scalar > 0)) fail(Code::model, "config.json: a query_pre_attn_scalar of ", scalar);
  return float(1 / std::sqrt(scalar));
}

// The block that Gemma 2 and 3 share.
nn::DecoderBlock block(const Reader& r, int64_t l, int64_t window_pattern, int64_t default_window) {
  nn::DecoderBlock b;
  b.attn_norm = r.norm(r.s.at(l, "attn_norm", "input_layernorm"), r.d.model);
  b.attn = self_attention(r.s, r.d, l);
  b.attn.window = r.s.window(l, r.s.integer("attention.sliding_window", "sliding_window", default_window), window_pattern);
  b.attn_post_norm = r.norm(r.s.at(l, "post_attention_norm", "post_attention_layernorm"), r.d.model);
  b.ffn_norm = r.norm(r.s.at(l, "ffn_norm", "pre_feedforward_layernorm"), r.d.model);
  b.mlp = gated_mlp(r.s, r.d, l, activation(r.s));
  b.ffn_post_norm = r.norm(r.s.at(l, "post_ffw_norm", "post_feedforward_layernorm"), r.d.model);
  return b;
}

}  // namespace

nn::Decoder load_gemma(const Source& s) {
  const Reader r = reader(s);
  nn::Decoder m = r.begin();
  for (int64_t l = 0; l < r.d.layers; l++) {
    nn::DecoderBlock b;
    b.attn_norm = r.norm(s.at(l, "attn_norm", "input_layernorm"), r.d.model);
    b.attn = self_attention(s, r.d, l);
    b.ffn_norm = r.norm(s.at(l, "ffn_norm", "post_attention_layernorm"), r.d.model);
    b.mlp = gated_mlp(s, r.d, l, activation(s));
    m.blocks.push_back(std::move(b));
  }
  return m;
}

nn::Decoder load_gemma2(const Source& s) {
  const Reader r = reader(s);
  nn::Decoder m = r.begin();
  m.logit_softcap = softcap(s, "final_logit_softcapping", 30);
  for (int64_t l = 0; l < r.d.layers; l++) {
    nn::DecoderBlock b = block(r, l, 2, 4096);
    b.attn.spec.scale = query_scale(s, r.d, 46);
    b.attn.spec.softcap = softcap(s, "attn_logit_softcapping", 50);
    m.blocks.push_back(std::move(b));
  }
  return m;
}

nn::Decoder load_gemma3(const Source& s) {
  // Published configs leave out what the library's defaults say.
  constexpr Dims kDefaults = {
      .model = 2304, .layers = 26, .heads = 8, .kv_heads = 4, .head = 256, .ff = 9216, .vocab = 262208, .context = 131072};
  const Reader r = reader(s, kDefaults);
  nn::Decoder m = r.begin(1e6);
  m.logit_softcap = softcap(s, "final_logit_softcapping", 0);
  const Json local = s.config()["rope_parameters"]["sliding_attention"];
  if (local["rope_type"] && local["rope_type"].string("config.json: rope_type") != "default")
    fail(Code::unsupported, "config.json: rope scaling of the sliding layers");
  const double base = local["rope_theta"] ? local["rope_theta"].number("config.json: rope_theta")
                                          : s.number("rope.freq_base_swa", "rope_local_base_freq", 1e4);
  m.ropes.push_back(nn::Rope::plain(int(r.d.head), base, true));
  for (int64_t l = 0; l < r.d.layers; l++) {
    nn::DecoderBlock b = block(r, l, 6, s.gguf() ? 0 : 4096);
    b.attn.spec.scale = query_scale(s, r.d, 62);
    b.attn.spec.softcap = softcap(s, "attn_logit_softcapping", 0);
    b.attn.rope = b.attn.window ? 1 : 0;
    b.attn.q_norm = r.norm(s.at(l, "attn_q_norm", "self_attn.q_norm"), r.d.head);
    b.attn.k_norm = r.norm(s.at(l, "attn_k_norm", "self_attn.k_norm"), r.d.head);
    m.blocks.push_back(std::move(b));
  }
  return m;
}

}  // namespace tealight::models
