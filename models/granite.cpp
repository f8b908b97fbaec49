// Granite 3 (Granite Team, IBM, 2024): Llama with four multipliers: of the embedding, of what each half adds, of the scores,
// and a divisor of the logits.
#include "models/models.h"
#include "src/base/error.h"

namespace tealight::models {

nn::Decoder load_granite(const Source& s) {
  nn::Decoder m = load_llama(s);
  m.embedding_scale = float(s.number("embedding_scale", "embedding_multiplier", 1));
  const double divisor = s.number("logit_scale", "logits_scaling", 1);
  if (!(divisor > 0)) fail(Code::model, "logits are divided by ", divisor);
  m.logit_scale = float(1 / divisor);
  for (nn::DecoderBlock& b : m.blocks) {
    b.attn.spec.scale = float(s.number("attention.scale", "attention_multiplier", s.gguf() ? double(b.attn.spec.scale) : 1));
    b.residual_scale = float(s.number("residual_scale", "residual_multiplier", 1));
  }
  return m;
}

}  // namespace tealight::models
