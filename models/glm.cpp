// GLM-4 (arXiv 2406.12793): rope between neighbours on half of each head, gate and up in one matrix; the form of April 2025
// ("glm4") also has norms after attention and MLP.
#include "models/models.h"

namespace tealight::models {
namespace {

nn::Decoder load(const Source& s, bool post_norms) {
  const Dims d = s.dims();
  const double eps = s.number("attention.layer_norm_rms_epsilon", "rms_norm_eps");
  nn::Decoder m;
  s.embedding_and_head(m, d, "model.embed_tokens", "lm_head");
  m.ropes.push_back(s.rope(s.rotated(d.head, 0.5), d.head, false));
  for (int64_t l = 0; l < d.layers; l++) {
    nn::DecoderBlock b;
    b.attn_norm = s.rms_norm(s.at(l, "attn_norm", "input_layernorm"), d.model, eps);
    b.attn = self_attention(s, d, l);
    b.ffn_norm = s.rms_norm(s.at(l, "ffn_norm", "post_attention_layernorm"), d.model, eps);
    b.mlp = fused_mlp(s, d, l, s.activation("silu"));
    if (post_norms) {
      b.attn_post_norm = s.rms_norm(s.at(l, "post_attention_norm", "post_self_attn_layernorm"), d.model, eps);
      b.ffn_post_norm = s.rms_norm(s.at(l, "post_ffw_norm", "post_mlp_layernorm"), d.model, eps);
    }
    m.blocks.push_back(std::move(b));
  }
  m.final_norm = s.rms_norm({"output_norm", "model.norm"}, d.model, eps);
  return m;
}

}  // namespace

nn::Decoder load_glm(const Source& s) { return load(s, false); }
nn::Decoder load_glm4(const Source& s) { return load(s, true); }

}  // namespace tealight::models
