// What the architecture files share beyond source.h, and their entry points (listed in registry.cpp).
#pragma once
#include <array>

#include "models/source.h"

namespace tealight::models {

// Fills m.experts. GGUF: one tensor [experts, rows, cols] for each of ffn_gate_exps, ffn_up_exps, ffn_down_exps. Hugging Face: a
// module for each expert below `module` with the projections gate, up, down named so, or fused tensors "gate_up_proj"
// [experts, 2 * ff, model] and "down_proj" [experts, model, ff].
void load_experts(const Source& s, nn::Moe& m, int64_t layer, int64_t experts, int64_t ff, int64_t model, Activation act,
                  std::string_view module, std::array<std::string_view, 3> projections);

nn::Decoder load_llama(const Source& s);

}  // namespace tealight::models
