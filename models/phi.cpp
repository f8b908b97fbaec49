// Phi-1 to 2 (Li et al. 2023, arXiv 2309.05463): attention and a plain MLP side by side after one layer norm, biases everywhere,
// half of each head turns. Phi-3 and 4 (arXiv 2404.14219): Llama with fused matrices, a window, and long rope factors.
#include "models/models.h"

namespace tealight::models {

nn::Decoder load_phi(const Source& s) {
  const Dims d = s.dims();
  const double eps = s.number("attention.layer_norm_epsilon", "layer_norm_eps", 1e-5);
  nn::Decoder m;
  s.embedding_and_head(m, d, "model.embed_tokens", "lm_head");
  m.ropes.push_back(s.rope(s.rotated(d.head, 0.5), d.head, true));
  for (int64_t l = 0; l < d.layers; l++) {
    nn::DecoderBlock b;
    b.parallel = true;
    b.attn_norm = s.layer_norm(s.at(l, "attn_norm", "input_layernorm"), d.model, eps);
    b.attn = self_attention(s, d, l, "self_attn.dense");
    if (s.boolean("", "qk_layernorm", false)) {
      b.attn.q_norm = s.layer_norm(s.at(l, "", "self_attn.q_layernorm"), d.head, eps);
      b.attn.k_norm = s.layer_norm(s.at(l, "", "self_attn.k_layernorm"), d.head, eps);
    }
    b.mlp = plain_mlp(s, d, l, s.activation("gelu_new"), "mlp.fc1", "mlp.fc2");
    m.blocks.push_back(std::move(b));
  }
  m.final_norm = s.layer_norm({"output_norm", "model.final_layernorm"}, d.model, eps);
  return m;
}

nn::Decoder load_phi3(const Source& s) {
  const Dims d = s.dims();
  const double eps = s.number("attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-5);
  const int64_t window = s.integer("attention.sliding_window", "sliding_window", 0);
  nn::Decoder m;
  s.embedding_and_head(m, d, "model.embed_tokens", "lm_head");
  m.ropes.push_back(s.rope(s.rotated(d.head), d.head, true));
  for (int64_t l = 0; l < d.layers; l++) {
    nn::DecoderBlock b;
    b.attn_norm = s.rms_norm(s.at(l, "attn_norm", "input_layernorm"), d.model, eps);
    b.attn = fused_attention(d, s.linear(s.at(l, "attn_qkv", "self_attn.qkv_proj"), qkv_rows(d), d.model), false,
                             s.linear(s.at(l, "attn_output", "self_attn.o_proj"), d.model, d.heads * d.head));
    b.attn.window = s.window(l, window, 0);
    b.ffn_norm = s.rms_norm(s.at(l, "ffn_norm", "post_attention_layernorm"), d.model, eps);
    b.mlp = fused_mlp(s, d, l, s.activation("silu"));
    m.blocks.push_back(std::move(b));
  }
  m.final_norm = s.rms_norm({"output_norm", "model.norm"}, d.model, eps);
  return m;
}

}  // namespace tealight::models
