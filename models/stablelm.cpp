// StableLM (Bellagente et al. 2024, arXiv 2402.17834): Llama with layer norms and rope on a quarter of each head; StableLM 2 12B
// also has one norm for attention and MLP side by side, and a layer norm with weights of its own for each head's query and key.
#include "models/models.h"
#include "src/base/error.h"

namespace tealight::models {
namespace {

// The weights of one norm a head, [heads, d]; the checkpoint has a module for each.
nn::Norm head_norms(const Source& s, int64_t layer, const char* gguf, std::string_view hf, int64_t heads, int64_t d, double eps) {
  nn::Norm n;
  n.on = n.layer = true;
  n.eps = float(eps);
  if (s.gguf()) {
    n.w = copy(s.matrix(s.at(layer, gguf, ""), heads, d));
    return n;
  }
  n.w = Tensor::empty(s.device(), {heads, d});
  for (int64_t h = 0; h < heads; h++)
    s.device().copy(s.vector(s.at(layer, "", cat("self_attn.", hf, ".norms.", h)), ".weight", d), n.w.select(0, h));
  return n;
}

}  // namespace

nn::Decoder load_stablelm(const Source& s) {
  const Dims d = s.dims();
  const double eps = s.number("attention.layer_norm_epsilon", "layer_norm_eps", 1e-5);
  nn::Decoder m;
  s.embedding_and_head(m, d, "model.embed_tokens", "lm_head");
  m.ropes.push_back(s.rope(s.rotated(d.head, 0.25), d.head, true));
  for (int64_t l = 0; l < d.layers; l++) {
    nn::DecoderBlock b;
    // GGUF files tell the two forms by their tensors.
    const Name second = s.at(l, "ffn_norm", "post_attention_layernorm");
    b.parallel = s.gguf() ? !s.has(second) : s.boolean("", "use_parallel_residual", false);
    b.attn_norm = s.layer_norm(s.at(l, "attn_norm", "input_layernorm"), d.model, eps);
    b.attn = self_attention(s, d, l);
    if (s.gguf() ? s.has(s.at(l, "attn_q_norm", "")) : s.boolean("", "qk_layernorm", false)) {
      b.attn.q_norm = head_norms(s, l, "attn_q_norm", "q_layernorm", d.heads, d.head, eps);
      b.attn.k_norm = head_norms(s, l, "attn_k_norm", "k_layernorm", d.kv_heads, d.head, eps);
    }
    if (!b.parallel) b.ffn_norm = s.layer_norm(second, d.model, eps);
    b.mlp = gated_mlp(s, d, l, s.activation("silu"));
    m.blocks.push_back(std::move(b));
  }
  m.final_norm = s.layer_norm({"output_norm", "model.norm"}, d.model, eps);
  return m;
}

}  // namespace tealight::models
