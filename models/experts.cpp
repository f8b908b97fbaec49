#include "models/models.h"
#include "src/base/error.h"

namespace tealight::models {

void load_experts(const Source& s, nn::Moe& m, int64_t layer, int64_t experts, int64_t ff, int64_t model, Activation act,
                  std::string_view module, std::array<std::string_view, 3> projections) {
  if (experts < 1 || experts > 4096 || m.top < 1 || m.top > experts || m.top > 32)
    fail(Code::model, m.top, " of ", experts, " experts");
  if (ff < 1 || ff > 1 << 24) fail(Code::model, "experts of the width ", ff);
  Tensor gate, up, down;
  const Name fused = s.at(layer, "", cat(module, ".gate_up_proj"));
  if (s.gguf()) {
    gate = s.experts(s.at(layer, "ffn_gate_exps", ""), experts, ff, model);
    up = s.experts(s.at(layer, "ffn_up_exps", ""), experts, ff, model);
    down = s.experts(s.at(layer, "ffn_down_exps", ""), experts, model, ff);
  } else if (s.has(fused, "")) {
    Tensor both = s.experts(fused, experts, 2 * ff, model);
    gate = both.slice(1, 0, ff);
    up = both.slice(1, ff, 2 * ff);
    down = s.experts(s.at(layer, "", cat(module, ".down_proj")), experts, model, ff);
  }
  for (int64_t e = 0; e < experts; e++) {
    nn::Mlp x;
    x.act = act;
    if (gate) {
      x.gate.w = gate.select(0, e);
      x.up.w = up.select(0, e);
      x.down.w = down.select(0, e);
    } else {
      auto at = [&](std::string_view p) { return s.at(layer, "", cat(module, ".", e, ".", p)); };
      x.gate = s.linear(at(projections[0]), ff, model);
      x.up = s.linear(at(projections[1]), ff, model);
      x.down = s.linear(at(projections[2]), model, ff);
    }
    m.experts.push_back(std::move(x));
  }
}

}  // namespace tealight::models
