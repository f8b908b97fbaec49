// Unicode: UTF-8, general categories, normal forms and case, over the tables of utf8proc.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tealight {

struct Utf8Char {
  uint32_t c = 0xfffd;   // the code point; U+FFFD where the bytes are ill-formed
  uint32_t bytes = 1;    // bytes taken: the character, or the maximal ill-formed subpart (Unicode 15, section 3.9)
  bool ok = false;       // well-formed
  bool cut = false;      // ill-formed only because the text ends here
};
Utf8Char utf8_beyond_ascii(std::string_view s, size_t i);
// The character at s[i]; i < s.size().
inline Utf8Char utf8_at(std::string_view s, size_t i) {
  const auto b = static_cast<unsigned char>(s[i]);
  return b < 0x80 ? Utf8Char{b, 1, true} : utf8_beyond_ascii(s, i);
}
// Start of the character that ends before i; i > 0 and s well-formed.
inline size_t utf8_before(std::string_view s, size_t i) {
  do i--;
  while (i > 0 && (static_cast<unsigned char>(s[i]) & 0xc0) == 0x80);
  return i;
}
void utf8_append(std::string& out, uint32_t c);
bool utf8_valid(std::string_view s);
bool is_ascii(std::string_view s);
// Appends `bytes` as UTF-8; what is ill-formed becomes one U+FFFD for each maximal subpart, or for each byte.
void utf8_append_lossy(std::string& out, std::string_view bytes, bool each_byte = false);

// General categories with the numbers of utf8proc; a set of them is a bit mask.
enum class Category : uint8_t { cn, lu, ll, lt, lm, lo, mn, mc, me, nd, nl, no, pc, pd, ps, pe, pi, pf, po, sm, sc, sk, so, zs, zl, zp, cc, cf, cs, co };
Category category(uint32_t c);
constexpr uint32_t bit(Category c) { return 1u << static_cast<int>(c); }
// The mask of "L", "Lu", "P", ... as regular expressions write it; 0 when there is no such category.
uint32_t category_mask(std::string_view name);
inline bool in_categories(uint32_t c, uint32_t mask) { return mask >> static_cast<int>(category(c)) & 1; }

bool is_space(uint32_t c);          // property White_Space
bool is_word(uint32_t c);           // \w: alphabetic, marks, decimal digits, connector punctuation (UTS 18, annex C)
bool is_numeric(uint32_t c);        // Nd, Nl, No
bool is_punctuation(uint32_t c);    // P*, and every ASCII punctuation character ($ + < = > ^ ` | ~ too)
bool is_han(uint32_t c);            // script Han
bool is_cjk_ideograph(uint32_t c);  // the ideograph blocks that BERT puts spaces around

uint32_t to_lower(uint32_t c);      // simple mapping
uint32_t fold_case(uint32_t c);     // simple case folding
// The characters that fold_case maps to `folded`; the places left over repeat one of them or hold one that it maps elsewhere.
std::array<uint32_t, 7> case_variants(uint32_t folded);
void append_lower(std::string& out, uint32_t c);   // full mapping without context

enum class NormalForm { nfc, nfd, nfkc, nfkd };
// s must be well-formed.
std::string normalize(std::string_view s, NormalForm form);
// Bytes of the extended grapheme cluster that begins at s[i].
size_t grapheme_bytes(std::string_view s, size_t i);

}  // namespace tealight
