// The only place that knows architectures by name.
#include "models/models.h"
#include "src/base/error.h"

namespace tealight::models {
namespace {

constexpr Architecture kArchitectures[] = {
    {"llama", "llama", load_llama},
    {"llama", "mistral", load_llama},
    {"llama", "mixtral", load_llama},
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
