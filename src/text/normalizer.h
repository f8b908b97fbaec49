// What happens to a text before it is cut: Unicode forms, case, replacements.
#pragma once
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "src/base/json.h"
#include "src/base/unicode.h"
#include "src/text/regex.h"

namespace tealight {

// SentencePiece's compiled rules: a double array (S. Kanda's XOR-compressed form, as Darts writes it) from prefixes to
// places in a block of zero-terminated replacements.
class CharsMap {
 public:
  // u32 bytes of the array, the array, the replacements. Errors: Code::tokenizer naming `what`.
  static std::shared_ptr<const CharsMap> parse(std::string_view blob, std::string_view what);
  struct Hit {
    size_t bytes = 0;              // of the prefix that matched; 0: none
    std::string_view replacement;
  };
  Hit find(std::string_view s, bool longest) const;   // the longest or the shortest prefix of s that has a rule
  // As Hugging Face's library applies it: by grapheme clusters of fewer than 6 bytes, else by characters.
  std::string normalize(std::string_view s) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;
};

struct NormalForms { NormalForm form; };
struct Lowercase {};
struct StripAccents {};
struct NmtCleanup {};
struct BytesToLetters {};                 // byte-level: each byte becomes its letter
struct Prepend { std::string text; };
struct StripSpaces { bool left, right; };
struct Replace {
  std::string literal;                    // or
  std::shared_ptr<const Regex> regex;
  std::string with;
};
struct BertCleanup {
  bool clean, ideographs, strip_accents, lowercase;
  bool bases_only = false;                // of a decomposition only the first character stays, as GGUF's readers have it
};
// SentencePiece on a GGUF's terms: rules, then spaces.
struct SentencePieceRules {
  std::shared_ptr<const CharsMap> rules;  // may be null
  bool add_prefix, merge_spaces;
};

class Normalizer {
 public:
  using Step = std::variant<NormalForms, Lowercase, StripAccents, NmtCleanup, BytesToLetters, Prepend, StripSpaces, Replace,
                            BertCleanup, SentencePieceRules, std::shared_ptr<const CharsMap>>;
  std::vector<Step> steps;

  // From the `normalizer` of a tokenizer.json; null is none. Errors: Code::tokenizer with the type.
  static Normalizer from_json(Json j);
  // `s` must be well-formed UTF-8.
  std::string run(std::string s) const;
};

// The letters of byte-level vocabularies (GPT-2): each byte as one printable character, and back.
void append_byte_letter(std::string& out, uint8_t byte);
int byte_of_letter(uint32_t c);           // -1: not such a letter

// Fails with Code::tokenizer when a text of `before` bytes has become one of `now`, by far more than normalization makes:
// steps that multiply what others made could fill any memory.
void check_growth(size_t before, size_t now);

std::string replaced(std::string_view s, std::string_view what, std::string_view with);

}  // namespace tealight
