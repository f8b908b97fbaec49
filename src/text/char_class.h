// Sets of characters as regular expressions write them.
#pragma once
#include <cstdint>
#include <vector>

#include "src/base/unicode.h"

namespace tealight {

// A union of items, then intersected with every set in `and_`, then negated.
struct CharClass {
  struct Range {
    uint32_t low, high;
  };
  std::vector<Range> ranges;
  uint32_t categories = 0;           // general categories that belong to it
  bool space = false, word = false, han = false;
  std::vector<CharClass> nested;     // further members of the union
  std::vector<CharClass> and_;
  bool negated = false, fold = false;
  uint64_t ascii[2] = {0, 0};        // the answer for c < 128, by finish()

  bool has(uint32_t c) const { return c < 128 ? ascii[c >> 6] >> (c & 63) & 1 : test(c); }
  void finish() {
    for (uint32_t c = 0; c < 128; c++)
      if (test(c)) ascii[c >> 6] |= uint64_t(1) << (c & 63);
  }

 private:
  bool item(uint32_t c) const {
    for (const Range& r : ranges)
      if (c >= r.low && c <= r.high) return true;
    if (categories && in_categories(c, categories)) return true;
    if ((space && is_space(c)) || (word && is_word(c)) || (han && is_han(c))) return true;
    for (const CharClass& n : nested)
      if (n.test(c)) return true;
    return false;
  }
  bool test(uint32_t c) const {
    bool in = item(c);
    if (!in && fold) in = folded(c);
    for (const CharClass& a : and_) in = in && a.test(c);
    return in != negated;
  }
  // With ignored case c belongs where a character of the same folding does.
  bool folded(uint32_t c) const {
    const uint32_t f = fold_case(c);
    for (uint32_t v : case_variants(f))
      if (fold_case(v) == f && item(v)) return true;
    return false;
  }
};

}  // namespace tealight
