// GPT-2 (Radford et al. 2019): learned positions, layer norms, a plain MLP. GPT-BigCode, which is StarCoder (Li et al. 2023,
// arXiv 2305.06161): the same with one K/V head. GPT-NeoX (Black et al. 2022, arXiv 2204.06745): rope on a part of each head, and
// attention and MLP side by side.
#include "models/models.h"

namespace tealight::models {
namespace {

// conv: the matrices of the checkpoint are [in, out].
nn::Decoder load_learned(const Source& source, bool conv) {
  Source s = source;
  s.layers = "transformer.h.";
  Dims d = s.dims();
  const bool one_kv = !s.gguf() && !conv && s.boolean("", "multi_query", true);
  if (one_kv) d.kv_heads = 1;
  const double eps = s.number("attention.layer_norm_epsilon", "layer_norm_epsilon", 1e-5);
  auto linear = [&](const Name& n, int64_t out, int64_t in) { return conv ? s.linear_transposed(n, out, in) : s.linear(n, out, in); };
  nn::Decoder m;
  s.embedding_and_head(m, d, "transformer.wte", "lm_head");
  m.positions = s.matrix({"position_embd", "transformer.wpe"}, d.context, d.model);
  for (int64_t l = 0; l < d.layers; l++) {
    nn::DecoderBlock b;
    b.attn_norm = s.layer_norm(s.at(l, "attn_norm", "ln_1"), d.model, eps);
    // Without multi_query, BigCode's rows go head by head.
    b.attn = fused_attention(d, linear(s.at(l, "attn_qkv", "attn.c_attn"), qkv_rows(d), d.model), !s.gguf() && !conv && !one_kv,
                             linear(s.at(l, "attn_output", "attn.c_proj"), d.model, d.heads * d.head));
    b.attn.rope = -1;
    if (!s.boolean("", "scale_attn_weights", true)) b.attn.spec.scale = 1;
    if (s.boolean("", "scale_attn_by_inverse_layer_idx", false)) b.attn.spec.scale /= float(l + 1);
    b.ffn_norm = s.layer_norm(s.at(l, "ffn_norm", "ln_2"), d.model, eps);
    b.mlp.up = linear(s.at(l, "ffn_up", "mlp.c_fc"), d.ff, d.model);
    b.mlp.down = linear(s.at(l, "ffn_down", "mlp.c_proj"), d.model, d.ff);
    b.mlp.act = s.activation(conv ? "gelu_new" : "gelu_pytorch_tanh");
    m.blocks.push_back(std::move(b));
  }
  m.final_norm = s.layer_norm({"output_norm", "transformer.ln_f"}, d.model, eps);
  return m;
}

}  // namespace

nn::Decoder load_gpt2(const Source& s) { return load_learned(s, true); }
nn::Decoder load_gpt_bigcode(const Source& s) { return load_learned(s, false); }

nn::Decoder load_gpt_neox(const Source& source) {
  Source s = source;
  s.layers = "gpt_neox.layers.";
  const Dims d = s.dims();
  const double eps = s.number("attention.layer_norm_epsilon", "layer_norm_eps", 1e-5);
  nn::Decoder m;
  s.embedding_and_head(m, d, "gpt_neox.embed_in", "embed_out");
  m.ropes.push_back(s.rope(s.rotated(d.head, 0.25), d.head, true));
  for (int64_t l = 0; l < d.layers; l++) {
    nn::DecoderBlock b;
    b.parallel = s.boolean("use_parallel_residual", "use_parallel_residual", true);
    b.attn_norm = s.layer_norm(s.at(l, "attn_norm", "input_layernorm"), d.model, eps);
    // The checkpoint's rows go head by head.
    b.attn = fused_attention(d, s.linear(s.at(l, "attn_qkv", "attention.query_key_value"), qkv_rows(d), d.model), !s.gguf(),
                             s.linear(s.at(l, "attn_output", "attention.dense"), d.model, d.heads * d.head));
    b.ffn_norm = s.layer_norm(s.at(l, "ffn_norm", "post_attention_layernorm"), d.model, eps);
    b.mlp = plain_mlp(s, d, l, s.activation("gelu"), "mlp.dense_h_to_4h", "mlp.dense_4h_to_h");
    m.blocks.push_back(std::move(b));
  }
  m.final_norm = s.layer_norm({"output_norm", "gpt_neox.final_layer_norm"}, d.model, eps);
  return m;
}

}  // namespace tealight::models
