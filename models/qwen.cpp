// Qwen2 (Yang et al. 2024, arXiv 2407.10671): Llama with biases on q, k and v; its mixture of experts has a shared expert
// behind a gate. Qwen3 (arXiv 2505.09388): norms of the queries and keys of each head instead of biases, no shared expert.
#include <algorithm>

#include "models/models.h"

namespace tealight::models {
namespace {

// Hugging Face: without layer_types, the layers from max_window_layers on slide, in the mixtures all of them. GGUF has no window.
int window(const Source& s, int64_t layer, bool moe) {
  if (s.gguf() || !s.boolean("", "use_sliding_window", false)) return 0;
  const int64_t size = s.integer("", "sliding_window", 0);
  const bool slides = moe || s.config()["layer_types"].is_array() || layer >= s.integer("", "max_window_layers", 28);
  return slides ? s.window(layer, size, 0) : 0;
}

// Some layers of a mixture may be plain.
bool has_experts(const Source& s, int64_t layer) {
  if (s.gguf()) return true;
  for (Json l : s.config()["mlp_only_layers"].elements())
    if (l.integer("config.json: mlp_only_layers") == layer) return false;
  return (layer + 1) % std::max<int64_t>(s.integer("", "decoder_sparse_step", 1), 1) == 0;
}

nn::Moe experts(const Source& s, const Dims& d, int64_t layer, bool shared) {
  nn::Moe m;
  const int64_t count = s.integer("expert_count", s.config()["num_experts"] ? "num_experts" : "num_local_experts");
  const int64_t ff = s.integer("expert_feed_forward_length", "moe_intermediate_size");
  m.top = int(std::clamp<int64_t>(s.integer("expert_used_count", "num_experts_per_tok"), 0, 1 << 16));
  m.normalize = s.boolean("expert_weights_norm", "norm_topk_prob", s.gguf() && !shared);
  m.router = s.linear(s.at(layer, "ffn_gate_inp", "mlp.gate"), count, d.model);
  load_experts(s, m, layer, count, ff, d.model, s.activation("silu"), "mlp.experts", {"gate_proj", "up_proj", "down_proj"});
  if (shared) {
    const int64_t wide = s.integer("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
    m.shared.gate = s.linear(s.at(layer, "ffn_gate_shexp", "mlp.shared_expert.gate_proj"), wide, d.model);
    m.shared.up = s.linear(s.at(layer, "ffn_up_shexp", "mlp.shared_expert.up_proj"), wide, d.model);
    m.shared.down = s.linear(s.at(layer, "ffn_down_shexp", "mlp.shared_expert.down_proj"), d.model, wide);
    m.shared.act = s.activation("silu");
    m.shared_gate = s.linear(s.at(layer, "ffn_gate_inp_shexp", "mlp.shared_expert_gate"), 1, d.model);
  }
  return m;
}

nn::Decoder load(const Source& s, bool head_norms, bool moe) {
  const Dims d = s.dims();
  const double eps = s.number("attention.layer_norm_rms_epsilon", "rms_norm_eps");
  nn::Decoder m;
  s.embedding_and_head(m, d, "model.embed_tokens", "lm_head");
  m.ropes.push_back(s.rope(s.rotated(d.head), d.head, true));
  for (int64_t l = 0; l < d.layers; l++) {
    nn::DecoderBlock b;
    b.attn_norm = s.rms_norm(s.at(l, "attn_norm", "input_layernorm"), d.model, eps);
    b.attn = self_attention(s, d, l);
    b.attn.window = window(s, l, moe);
    if (head_norms) {
      b.attn.q_norm = s.rms_norm(s.at(l, "attn_q_norm", "self_attn.q_norm"), d.head, eps);
      b.attn.k_norm = s.rms_norm(s.at(l, "attn_k_norm", "self_attn.k_norm"), d.head, eps);
    }
    b.ffn_norm = s.rms_norm(s.at(l, "ffn_norm", "post_attention_layernorm"), d.model, eps);
    if (moe && has_experts(s, l)) b.moe = experts(s, d, l, !head_norms);
    else b.mlp = gated_mlp(s, d, l, s.activation("silu"));
    m.blocks.push_back(std::move(b));
  }
  m.final_norm = s.rms_norm({"output_norm", "model.norm"}, d.model, eps);
  return m;
}

}  // namespace

nn::Decoder load_qwen2(const Source& s) { return load(s, false, false); }
nn::Decoder load_qwen2_moe(const Source& s) { return load(s, false, true); }
nn::Decoder load_qwen3(const Source& s) { return load(s, true, false); }
nn::Decoder load_qwen3_moe(const Source& s) { return load(s, true, true); }

}  // namespace tealight::models
