// Llama 1-3 (Touvron et al. 2023, arXiv 2302.13971) and the models of its shape: grouped queries, rope, SwiGLU, RMS norms;
// Mistral adds a sliding window, Mixtral experts. GGUF calls them all "llama".
#include "models/models.h"

namespace tealight::models {
namespace {

// Mixtral (Jiang et al. 2024, arXiv 2401.04088): a softmax over the chosen experts, which is the chosen part of the softmax
// over all of them divided by its sum.
nn::Moe mixtral_moe(const Source& s, const Dims& d, int64_t layer, int64_t experts) {
  nn::Moe m;
  m.top = int(s.integer("expert_used_count", "num_experts_per_tok"));
  m.router = s.linear(s.at(layer, "ffn_gate_inp", "block_sparse_moe.gate"), experts, d.model);
  load_experts(s, m, layer, experts, d.ff, d.model, Activation::silu, "block_sparse_moe.experts", {"w1", "w3", "w2"});
  return m;
}

}  // namespace

nn::Decoder load_llama(const Source& s) {
  const Dims d = s.dims();
  const double eps = s.number("attention.layer_norm_rms_epsilon", "rms_norm_eps");
  const int64_t experts = s.integer("expert_count", "num_local_experts", 0);
  const int64_t window = s.integer("attention.sliding_window", "sliding_window", 0);
  nn::Decoder m;
  s.embedding_and_head(m, d, "model.embed_tokens", "lm_head");
  // GGUF files of this architecture have the rows of q and k permuted, so that neighbours are pairs.
  m.ropes.push_back(s.rope(s.integer("rope.dimension_count", "", d.head), d.head, !s.gguf()));
  for (int64_t l = 0; l < d.layers; l++) {
    nn::DecoderBlock b;
    b.attn_norm = s.rms_norm(s.at(l, "attn_norm", "input_layernorm"), d.model, eps);
    b.attn = self_attention(s, d, l);
    b.attn.window = s.window(l, window, 0);
    b.ffn_norm = s.rms_norm(s.at(l, "ffn_norm", "post_attention_layernorm"), d.model, eps);
    if (experts) b.moe = mixtral_moe(s, d, l, experts);
    else b.mlp = gated_mlp(s, d, l, s.activation("silu"));
    m.blocks.push_back(std::move(b));
  }
  m.final_norm = s.rms_norm({"output_norm", "model.norm"}, d.model, eps);
  return m;
}

}  // namespace tealight::models
