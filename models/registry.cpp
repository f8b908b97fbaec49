// The only place that knows architectures by name.
#include "models/models.h"
#include "src/base/error.h"

namespace tealight::models {
namespace {

constexpr Architecture kArchitectures[] = {
    {"falcon", "falcon", load_falcon},
    {"gemma", "gemma", load_gemma},
    {"gemma2", "gemma2", load_gemma2},
    {"gemma3", "gemma3_text", load_gemma3},
    {"chatglm", "glm", load_glm},
    {"glm4", "glm4", load_glm4},
    {"gpt2", "gpt2", load_gpt2},
    {"starcoder", "gpt_bigcode", load_gpt_bigcode},
    {"gptneox", "gpt_neox", load_gpt_neox},
    {"granite", "granite", load_granite},
    {"llama", "llama", load_llama},
    {"llama", "mistral", load_llama},
    {"llama", "mixtral", load_llama},
    {"olmo2", "olmo2", load_olmo2},
    {"olmo2", "olmo3", load_olmo2},
    {"phi2", "phi", load_phi},
    {"phi3", "phi3", load_phi3},
    {"qwen2", "qwen2", load_qwen2},
    {"qwen2moe", "qwen2_moe", load_qwen2_moe},
    {"qwen3", "qwen3", load_qwen3},
    {"qwen3moe", "qwen3_moe", load_qwen3_moe},
    {"smollm3", "smollm3", load_smollm3},
    {"stablelm", "stablelm", load_stablelm},
    {"starcoder2", "starcoder2", load_starcoder2},
};

}  // namespace

const Architecture* find_architecture(const Source& s) {
  for (const Architecture& a : kArchitectures)
    if (s.architecture() == (s.gguf() ? a.gguf : a.model_type)) return &a;
  return nullptr;
}

std::string known_architectures() {
  std::string list;
  for (const Architecture& a : kArchitectures) list += cat(list.empty() ? "" : ", ", a.model_type[0] ? a.model_type : a.gguf);
  return list;
}

}  // namespace tealight::models
