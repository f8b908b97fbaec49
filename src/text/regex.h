// Regular expressions as tokenizer files use them: a subset of Oniguruma's (Ruby) syntax over UTF-8 text.
//
// Literals, classes with ranges, \s \S \d \D \w \W \h \p{..} \P{..}, nested classes and && in them, . ^ $ \A \z \Z \b \B,
// groups ( ) (?: ) (?i: ) (?> ), look-ahead (?= ) (?! ), look-behind of one character (?<=x) (?<!x), alternation, and the
// quantifiers ? * + {n,m}, greedy, lazy and possessive. Alternatives and quantifiers are tried in their written order and the
// first success wins, as in the reference tokenizers. No captures, no back references.
//
// The matcher keeps its own stack (no recursion on the text) and counts its steps: a pattern that backtracks without end
// fails with Code::tokenizer.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace tealight {

class Regex {
 public:
  // Errors: Code::tokenizer with the pattern, the byte and what is not supported there.
  static Regex compile(std::string_view pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  struct Match {
    size_t begin, end;
  };
  // All matches from left to right that do not overlap; `text` must be well-formed UTF-8. Replaces the content of `out`.
  void find_all(std::string_view text, std::vector<Match>& out) const;

  struct Program;

 private:
  explicit Regex(std::unique_ptr<const Program> p);
  std::unique_ptr<const Program> program_;
};

}  // namespace tealight
