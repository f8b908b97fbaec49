#include "src/base/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include <utf8proc.h>

#include "src/base/error.h"

namespace tealight {

Utf8Char utf8_beyond_ascii(std::string_view s, size_t i) {
  auto byte = [&](size_t at) { return static_cast<unsigned char>(s[at]); };
  const uint32_t b = byte(i);
  if (b < 0xc2 || b > 0xf4) return {};
  const uint32_t n = b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
  // Second byte, table 3-7 of the Unicode standard.
  const uint32_t low = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80, high = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
  uint32_t c = b & (0x7f >> n);
  for (uint32_t j = 1; j < n; j++) {
    if (i + j >= s.size()) return {0xfffd, j, false, true};
    const uint32_t d = byte(i + j);
    if (j == 1 ? d < low || d > high : (d & 0xc0) != 0x80) return {0xfffd, j, false};
    c = c << 6 | (d & 0x3f);
  }
  return {c, n, true};
}

void utf8_append(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += char(c);
  } else if (c < 0x800) {
    out += char(0xc0 | c >> 6);
    out += char(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += char(0xe0 | c >> 12);
    out += char(0x80 | (c >> 6 & 0x3f));
    out += char(0x80 | (c & 0x3f));
  } else {
    out += char(0xf0 | c >> 18);
    out += char(0x80 | (c >> 12 & 0x3f));
    out += char(0x80 | (c >> 6 & 0x3f));
    out += char(0x80 | (c & 0x3f));
  }
}

bool is_ascii(std::string_view s) {
  return std::all_of(s.begin(), s.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool utf8_valid(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const Utf8Char u = utf8_at(s, i);
    if (!u.ok) return false;
    i += u.bytes;
  }
  return true;
}

void utf8_append_lossy(std::string& out, std::string_view bytes, bool each_byte) {
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Char u = utf8_at(bytes, i);
    const size_t n = u.ok || !each_byte ? u.bytes : 1;
    if (u.ok) out += bytes.substr(i, n);
    else out += "\xef\xbf\xbd";
    i += n;
  }
}

Category category(uint32_t c) { return static_cast<Category>(utf8proc_category(utf8proc_int32_t(c))); }

uint32_t category_mask(std::string_view name) {
  static constexpr std::string_view names = "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCo";
  uint32_t mask = 0;
  for (size_t i = 0; i < names.size(); i += 2)
    if (names.substr(i, 2) == name || (name.size() == 1 && names[i] == name[0])) mask |= 1u << (i / 2);
  return mask;
}

bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

namespace {
using enum Category;
constexpr uint32_t kLetter = bit(lu) | bit(ll) | bit(lt) | bit(lm) | bit(lo), kMark = bit(mn) | bit(mc) | bit(me);
constexpr uint32_t kPunctuation = bit(pc) | bit(pd) | bit(ps) | bit(pe) | bit(pi) | bit(pf) | bit(po);

struct Range {
  uint32_t low, high;
};
bool in_ranges(uint32_t c, const Range* first, const Range* last) {
  const Range* r = std::lower_bound(first, last, c, [](const Range& a, uint32_t v) { return a.high < v; });
  return r != last && c >= r->low;
}
// Script=Han (Unicode 16, Scripts.txt).
constexpr Range kHan[] = {{0x2e80, 0x2e99},   {0x2e9b, 0x2ef3},   {0x2f00, 0x2fd5},   {0x3005, 0x3005},   {0x3007, 0x3007},
                          {0x3021, 0x3029},   {0x3038, 0x303b},   {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfa6d},
                          {0xfa70, 0xfad9},   {0x16fe2, 0x16fe3}, {0x16ff0, 0x16ff1}, {0x20000, 0x2a6df}, {0x2a700, 0x2b739},
                          {0x2b740, 0x2b81d}, {0x2b820, 0x2cea1}, {0x2ceb0, 0x2ebe0}, {0x2ebf0, 0x2ee5d}, {0x2f800, 0x2fa1d},
                          {0x30000, 0x3134a}, {0x31350, 0x323af}};
// As the reference tokenizers have it, with their 0x2b920 for 0x2b820.
constexpr Range kIdeographs[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},   {0x20000, 0x2a6df},
                                 {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
}  // namespace

bool is_word(uint32_t c) {
  // Beyond the categories: circled and squared letters, which are alphabetic symbols (PropList.txt, Other_Alphabetic).
  if ((c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189)) return true;
  return in_categories(c, kLetter | kMark | bit(nd) | bit(nl) | bit(pc));
}
bool is_numeric(uint32_t c) { return in_categories(c, bit(nd) | bit(nl) | bit(no)); }
bool is_punctuation(uint32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  return in_categories(c, kPunctuation);
}
bool is_han(uint32_t c) { return in_ranges(c, std::begin(kHan), std::end(kHan)); }
bool is_cjk_ideograph(uint32_t c) { return in_ranges(c, std::begin(kIdeographs), std::end(kIdeographs)); }

uint32_t to_lower(uint32_t c) { return uint32_t(utf8proc_tolower(utf8proc_int32_t(c))); }

uint32_t fold_case(uint32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  utf8proc_int32_t folded[8];
  int last_class = 0;
  const auto n = utf8proc_decompose_char(utf8proc_int32_t(c), folded, 8, UTF8PROC_CASEFOLD, &last_class);
  return n == 1 ? uint32_t(folded[0]) : c;
}

std::array<uint32_t, 7> case_variants(uint32_t folded) {
  // What folds to a character and is not its upper, title or lower case (CaseFolding.txt, status C and S).
  static constexpr struct {
    uint32_t from, to;
  } kOthers[] = {{0xb5, 0x3bc},     {0x17f, 0x73},     {0x345, 0x3b9},    {0x3c2, 0x3c3},     {0x3d0, 0x3b2},   {0x3d1, 0x3b8},
                 {0x3d5, 0x3c6},    {0x3d6, 0x3c0},    {0x3f0, 0x3ba},    {0x3f1, 0x3c1},     {0x3f4, 0x3b8},   {0x3f5, 0x3b5},
                 {0x1c80, 0x432},   {0x1c81, 0x434},   {0x1c82, 0x43e},   {0x1c83, 0x441},    {0x1c84, 0x442},  {0x1c85, 0x442},
                 {0x1c86, 0x44a},   {0x1c87, 0x463},   {0x1c88, 0xa64b},  {0x1e9b, 0x1e61},   {0x1fbe, 0x3b9},  {0x2126, 0x3c9},
                 {0x212a, 0x6b},    {0x212b, 0xe5}};
  const auto c = utf8proc_int32_t(folded);
  std::array<uint32_t, 7> v;
  v.fill(folded);
  v[1] = uint32_t(utf8proc_toupper(c));
  v[2] = uint32_t(utf8proc_totitle(c));
  v[3] = uint32_t(utf8proc_tolower(c));
  size_t n = 4;
  for (auto [from, to] : kOthers)
    if (to == folded && n < v.size()) v[n++] = from;
  return v;
}

void append_lower(std::string& out, uint32_t c) {
  if (c == 0x130) out += "i\xcc\x87";  // the one unconditional mapping to two characters (SpecialCasing.txt)
  else utf8_append(out, to_lower(c));
}

std::string normalize(std::string_view s, NormalForm form) {
  if (is_ascii(s)) return std::string(s);
  int bits = UTF8PROC_STABLE;
  bits |= form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) bits |= UTF8PROC_COMPAT;
  const auto options = static_cast<utf8proc_option_t>(bits);
  // The steps of utf8proc_map, but for the order of marks: it exchanges neighbours, in time quadratic in a run of marks.
  std::vector<utf8proc_int32_t> chars;
  chars.reserve(s.size());
  int bound_class = 0;
  for (size_t i = 0; i < s.size();) {
    const Utf8Char u = utf8_at(s, i);
    i += u.bytes;
    utf8proc_int32_t parts[32];              // the longest decomposition has 18 characters
    const auto n = utf8proc_decompose_char(utf8proc_int32_t(u.c), parts, 32, options, &bound_class);
    TEALIGHT_CHECK(n >= 0 && n <= 32);
    chars.insert(chars.end(), parts, parts + n);
  }
  auto rank = [](utf8proc_int32_t c) { return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class; };
  auto lower = [&](utf8proc_int32_t a, utf8proc_int32_t b) { return rank(a) < rank(b); };
  for (auto run = chars.begin(); run != chars.end();) {
    const auto end = std::find_if(run, chars.end(), [&](utf8proc_int32_t c) { return rank(c) == 0; });
    if (!std::is_sorted(run, end, lower)) std::stable_sort(run, end, lower);
    run = end == chars.end() ? end : end + 1;
  }
  chars.resize(size_t(utf8proc_normalize_utf32(chars.data(), utf8proc_ssize_t(chars.size()), options)));
  std::string r;
  r.reserve(s.size());
  for (utf8proc_int32_t c : chars) utf8_append(r, uint32_t(c));
  return r;
}

size_t grapheme_bytes(std::string_view s, size_t i) {
  const size_t start = i;
  utf8proc_int32_t state = 0;
  Utf8Char previous = utf8_at(s, i);
  i += previous.bytes;
  while (i < s.size()) {
    const Utf8Char next = utf8_at(s, i);
    if (utf8proc_grapheme_break_stateful(utf8proc_int32_t(previous.c), utf8proc_int32_t(next.c), &state)) break;
    previous = next;
    i += next.bytes;
  }
  return i - start;
}

}  // namespace tealight
