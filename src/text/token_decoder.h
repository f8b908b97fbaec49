// From a token's piece to the bytes that it stands for.
#pragma once
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "src/base/json.h"
#include "src/text/normalizer.h"

namespace tealight {

struct LettersToBytes {};                     // byte-level
struct ByteFallback {};                       // <0xXX>
struct StripChars {
  std::string content;
  size_t start = 0, stop = 0;                 // how many are dropped on each side
  bool whole = false;                         // of the whole text, not of each token
};
struct Marks {                                // Metaspace: marks are spaces, none in the first token
  std::string mark;
  bool drop_first = true;
};
struct JoinWords {                            // WordPiece
  std::string prefix;                         // of pieces inside a word
  std::string word_mark;                      // or of pieces that begin one
  bool cleanup = false;
};
struct EndOfWord { std::string suffix; };
struct JoinBySpace {};                        // no decoder at all

class TokenDecoder {
 public:
  using Step = std::variant<LettersToBytes, ByteFallback, StripChars, Marks, JoinWords, EndOfWord, JoinBySpace, Replace>;
  std::vector<Step> steps;

  // From the `decoder` of a tokenizer.json; null joins pieces by spaces. Errors: Code::tokenizer with the type.
  static TokenDecoder from_json(Json j);
  // Appends what the piece adds to a text. `literal`: an added token, whose piece is text already.
  void append(std::string& out, std::string_view piece, bool first, bool literal) const;
  template <class S>
  const S* step() const {
    for (const Step& s : steps)
      if (const S* found = std::get_if<S>(&s)) return found;
    return nullptr;
  }
};

}  // namespace tealight
