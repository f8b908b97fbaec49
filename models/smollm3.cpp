// SmolLM3 (Bakouch et al. 2025): Llama in which every fourth layer has no rope (Yang et al. 2025, arXiv 2501.18795).
#include "models/models.h"
#include "src/base/error.h"

namespace tealight::models {

nn::Decoder load_smollm3(const Source& s) {
  nn::Decoder m = load_llama(s);
  const Json layers = s.config()["no_rope_layers"];      // 1: the layer has rope
  const int64_t interval = s.integer("", "no_rope_layer_interval", 4);
  if (interval < 1) fail(Code::model, "config.json: a no_rope_layer_interval of ", interval);
  const int64_t window = s.boolean("", "use_sliding_window", false) ? s.integer("", "sliding_window", 0) : 0;
  for (size_t l = 0; l < m.blocks.size(); l++) {
    const bool rope = layers.is_array() ? layers[l].integer("config.json: no_rope_layers") != 0 : (int64_t(l) + 1) % interval != 0;
    nn::SelfAttention& a = m.blocks[l].attn;
    a.window = s.config()["layer_types"].is_array() ? s.window(int64_t(l), window, 0) : rope ? 0 : int(window);
    if (!rope) a.rope = -1;
  }
  return m;
}

}  // namespace tealight::models
