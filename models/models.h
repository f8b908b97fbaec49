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

nn::Decoder load_falcon(const Source& s);
nn::Decoder load_gemma(const Source& s);
nn::Decoder load_gemma2(const Source& s);
nn::Decoder load_gemma3(const Source& s);
nn::Decoder load_glm(const Source& s);
nn::Decoder load_glm4(const Source& s);
nn::Decoder load_gpt2(const Source& s);
nn::Decoder load_gpt_bigcode(const Source& s);
nn::Decoder load_gpt_neox(const Source& s);
nn::Decoder load_granite(const Source& s);
nn::Decoder load_llama(const Source& s);
nn::Decoder load_olmo2(const Source& s);
nn::Decoder load_phi(const Source& s);
nn::Decoder load_phi3(const Source& s);
nn::Decoder load_qwen2(const Source& s);
nn::Decoder load_qwen2_moe(const Source& s);
nn::Decoder load_qwen3(const Source& s);
nn::Decoder load_qwen3_moe(const Source& s);
nn::Decoder load_smollm3(const Source& s);
nn::Decoder load_stablelm(const Source& s);
nn::Decoder load_starcoder2(const Source& s);

}  // namespace tealight::models
