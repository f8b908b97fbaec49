// OLMo 2 (arXiv 2501.00656): Llama with its norms after attention and MLP instead of before, and norms of all queries and all keys
// together. OLMo 3 adds a window to three layers of four, whose rope no scaling touches; GGUF calls both "olmo2".
#include "models/models.h"

namespace tealight::models {

nn::Decoder load_olmo2(const Source& s) {
  const Dims d = s.dims();
  const double eps = s.number("attention.layer_norm_rms_epsilon", "rms_norm_eps");
  const int64_t window = s.integer("attention.sliding_window", "sliding_window", 0);
  nn::Decoder m;
  s.embedding_and_head(m, d, "model.embed_tokens", "lm_head");
  m.ropes.push_back(s.rope(d.head, d.head, true));
  if (window) m.ropes.push_back(nn::Rope::plain(int(d.head), s.rope_base(), true));
  for (int64_t l = 0; l < d.layers; l++) {
    nn::DecoderBlock b;
    b.attn = self_attention(s, d, l);
    b.attn.window = window ? s.window(l, window, 4) : 0;
    b.attn.rope = b.attn.window ? 1 : 0;
    b.attn.q_norm = s.rms_norm(s.at(l, "attn_q_norm", "self_attn.q_norm"), d.heads * d.head, eps);
    b.attn.k_norm = s.rms_norm(s.at(l, "attn_k_norm", "self_attn.k_norm"), d.kv_heads * d.head, eps);
    b.attn.norm_per_head = false;
    b.attn_post_norm = s.rms_norm(s.at(l, "post_attention_norm", "post_attention_layernorm"), d.model, eps);
    b.mlp = gated_mlp(s, d, l, s.activation("silu"));
    b.ffn_post_norm = s.rms_norm(s.at(l, "post_ffw_norm", "post_feedforward_layernorm"), d.model, eps);
    m.blocks.push_back(std::move(b));
  }
  m.final_norm = s.rms_norm({"output_norm", "model.norm"}, d.model, eps);
  return m;
}

}  // namespace tealight::models
