// Falcon (Almazrouei et al. 2023, arXiv 2311.16867): attention and a plain MLP side by side, no biases. The 7B form has one K/V
// head and one norm for both; the new form has groups of heads and (mostly) a norm for each half.
#include "models/models.h"
#include "src/base/error.h"

namespace tealight::models {

nn::Decoder load_falcon(const Source& source) {
  Source s = source;
  s.layers = "transformer.h.";
  Dims d = s.dims();
  const bool grouped_form = s.boolean("", "new_decoder_architecture", false);
  const bool parallel = s.boolean("", "parallel_attn", true) || grouped_form;
  if (s.boolean("", "alibi", false)) fail(Code::unsupported, "config.json: alibi");
  if (!s.gguf()) {
    const int64_t groups = s.integer("", "num_kv_heads", d.heads);
    d.kv_heads = grouped_form ? groups : s.boolean("", "multi_query", true) ? 1 : d.heads;
    if (d.kv_heads < 1 || d.heads % d.kv_heads) fail(Code::model, d.heads, " heads are not a multiple of ", d.kv_heads, " K/V heads");
    d.ff = s.integer("", "ffn_hidden_size", 4 * d.model);
  }
  const double eps = s.number("attention.layer_norm_epsilon", "layer_norm_epsilon", 1e-5);
  const bool two_norms = s.gguf() ? s.has(s.at(0, "attn_norm_2", "")) : grouped_form && s.integer("", "num_ln_in_parallel_attn", 2) == 2;
  nn::Decoder m;
  s.embedding_and_head(m, d, "transformer.word_embeddings", "lm_head");
  m.ropes.push_back(s.rope(d.head, d.head, true));
  for (int64_t l = 0; l < d.layers; l++) {
    nn::DecoderBlock b;
    b.parallel = parallel;
    if (two_norms) {
      b.attn_norm = s.layer_norm(s.at(l, "attn_norm_2", "ln_attn"), d.model, eps);
      b.ffn_norm = s.layer_norm(s.at(l, "attn_norm", "ln_mlp"), d.model, eps);
    } else {
      b.attn_norm = s.layer_norm(s.at(l, "attn_norm", "input_layernorm"), d.model, eps);
      if (!parallel) b.ffn_norm = s.layer_norm(s.at(l, "ffn_norm", "post_attention_layernorm"), d.model, eps);
    }
    b.attn = fused_attention(d, s.linear(s.at(l, "attn_qkv", "self_attention.query_key_value"), qkv_rows(d), d.model), !s.gguf(),
                             s.linear(s.at(l, "attn_output", "self_attention.dense"), d.model, d.heads * d.head));
    b.mlp = plain_mlp(s, d, l, s.activation("gelu"), "mlp.dense_h_to_4h", "mlp.dense_4h_to_h");
    m.blocks.push_back(std::move(b));
  }
  m.final_norm = s.layer_norm({"output_norm", "transformer.ln_f"}, d.model, eps);
  return m;
}

}  // namespace tealight::models
