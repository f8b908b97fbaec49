// Cutting a text into the pieces that a model may not merge across.
#pragma once
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "src/base/json.h"
#include "src/text/pieces.h"
#include "src/text/regex.h"

namespace tealight {

enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

// Cuts at what matches: a regular expression, a literal, or every character for which `chars` holds.
struct SplitStep {
  std::shared_ptr<const Regex> regex;
  std::string literal;
  bool (*chars)(uint32_t) = nullptr;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;                  // what does not match counts as the match
};
// Bytes become letters; before that a space is put before a piece that has none, and GPT-2's pattern may cut.
struct ByteLevelStep {
  bool prefix_space = false;
  std::shared_ptr<const Regex> regex;   // null: no cut
};
// Spaces become the mark; a mark may be put before the text.
struct MetaspaceStep {
  std::string mark;
  enum class Scheme { never, first, always } prepend = Scheme::always;
  bool split = true;
};

class PreTokenizer {
 public:
  using Step = std::variant<SplitStep, ByteLevelStep, MetaspaceStep>;
  std::vector<Step> steps;

  // From the `pre_tokenizer` of a tokenizer.json; null is none. Errors: Code::tokenizer with the type or the pattern.
  static PreTokenizer from_json(Json j);
  void run(Pieces& pieces) const;       // any number of pieces in, and out
};

extern const char kGpt2Pattern[];

}  // namespace tealight
