// StarCoder2 (Lozhkov et al. 2024, arXiv 2402.19173): grouped queries and rope with layer norms, biases and a plain MLP.
#include "models/models.h"

namespace tealight::models {

nn::Decoder load_starcoder2(const Source& s) {
  const Dims d = s.dims();
  const double eps = s.number("attention.layer_norm_epsilon", "norm_epsilon", 1e-5);
  const int64_t window = s.integer("attention.sliding_window", "sliding_window", 0);
  nn::Decoder m;
  s.embedding_and_head(m, d, "model.embed_tokens", "lm_head");
  m.ropes.push_back(s.rope(s.rotated(d.head), d.head, true));
  for (int64_t l = 0; l < d.layers; l++) {
    nn::DecoderBlock b;
    b.attn_norm = s.layer_norm(s.at(l, "attn_norm", "input_layernorm"), d.model, eps);
    b.attn = self_attention(s, d, l);
    b.attn.window = s.window(l, window, 0);
    b.ffn_norm = s.layer_norm(s.at(l, "ffn_norm", "post_attention_layernorm"), d.model, eps);
    b.mlp = plain_mlp(s, d, l, s.activation("gelu_pytorch_tanh"), "mlp.c_fc", "mlp.c_proj");
    m.blocks.push_back(std::move(b));
  }
  m.final_norm = s.layer_norm({"output_norm", "model.norm"}, d.model, eps);
  return m;
}

}  // namespace tealight::models
