// Tokens that are found in a text before anything else: special tokens and the user's own.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "src/text/normalizer.h"
#include "src/text/vocab.h"

namespace tealight {

struct AddedToken {
  TokenId id;
  std::string content;
  bool special = false;         // found only where special tokens may be written
  bool lstrip = false, rstrip = false;   // takes the white space before or after it along
  bool single_word = false;     // not next to a letter, digit or _
  bool normalized = false;      // looked for after normalization, in its own normalized form
};

// Byte ranges of a text where special tokens may be written, in order, apart from each other.
struct SpecialRanges {
  std::vector<std::pair<size_t, size_t>> ranges;
  bool allow(size_t begin, size_t end) const;
  bool all(size_t n) const { return ranges.size() == 1 && ranges[0].first == 0 && ranges[0].second == n; }
};

class AddedTokens {
 public:
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  struct Hit {
    size_t begin, end;
    TokenId id;
  };
  // The leftmost, of those the longest, tokens that do not overlap; `out` is replaced. On the text as written, and on
  // a normalized stretch of it.
  void find_raw(std::string_view text, const SpecialRanges& where, std::vector<Hit>& out) const;
  void find_normalized(std::string_view text, bool specials, std::vector<Hit>& out) const;
  bool any_normalized() const { return !normalized_.entries.empty(); }

 private:
  struct Set {
    std::vector<AddedToken> entries;             // contents as they are looked for
    FlatIndex index;
    std::vector<uint32_t> lengths[256];          // of the entries that begin with a byte, falling
    void build();
    template <class May>
    void find(std::string_view text, May may, std::vector<Hit>& out) const;
  };
  Set raw_, normalized_;
};

}  // namespace tealight
