#include "src/text/jinja_text.h"

#include <algorithm>

#include <utf8proc.h>

namespace tealight::jinja {

bool Text::user_at(size_t pos) const {
  return (std::upper_bound(flips_.begin(), flips_.end(), pos) - flips_.begin()) & 1;
}

void Text::append(const Text& other, size_t pos, size_t n) {
  if (other.flips_.empty()) return append(other.view().substr(pos, n), false);
  auto flip = std::upper_bound(other.flips_.begin(), other.flips_.end(), pos);
  bool user = (flip - other.flips_.begin()) & 1;
  const size_t end = pos + n;
  while (pos < end) {
    const size_t stop = flip == other.flips_.end() ? end : std::min<size_t>(*flip++, end);
    append(other.view().substr(pos, stop - pos), user);
    pos = stop;
    user = !user;
  }
}

char32_t char_at(std::string_view s, size_t pos) {
  const auto b = [&](size_t i) { return char32_t(static_cast<unsigned char>(s[pos + i])); };
  switch (char_bytes(static_cast<unsigned char>(s[pos]))) {
    case 1: return b(0);
    case 2: return (b(0) & 0x1f) << 6 | (b(1) & 0x3f);
    case 3: return (b(0) & 0x0f) << 12 | (b(1) & 0x3f) << 6 | (b(2) & 0x3f);
    default: return (b(0) & 0x07) << 18 | (b(1) & 0x3f) << 12 | (b(2) & 0x3f) << 6 | (b(3) & 0x3f);
  }
}

void append_char(std::string& out, char32_t c) {
  utf8proc_uint8_t buf[4];
  out.append(reinterpret_cast<const char*>(buf), size_t(utf8proc_encode_char(utf8proc_int32_t(c), buf)));
}

size_t count_chars(std::string_view s) {
  size_t n = 0;
  for (char c : s) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return n;
}

size_t char_offset(std::string_view s, size_t index) {
  size_t pos = 0;
  while (index-- > 0 && pos < s.size()) pos += char_bytes(static_cast<unsigned char>(s[pos]));
  return pos;
}

bool valid_utf8(std::string_view s) {
  for (size_t pos = 0; pos < s.size();) {
    utf8proc_int32_t c;
    const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(s.data()) + pos, utf8proc_ssize_t(s.size() - pos), &c);
    if (n <= 0) return false;
    pos += size_t(n);
  }
  return true;
}

namespace {
utf8proc_category_t category(char32_t c) { return utf8proc_category(utf8proc_int32_t(c)); }
}  // namespace

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || category(c) == UTF8PROC_CATEGORY_ZS || c == 0x2028 || c == 0x2029;
}
bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7f;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC: case UTF8PROC_CATEGORY_CF: case UTF8PROC_CATEGORY_CS: case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN: case UTF8PROC_CATEGORY_ZL: case UTF8PROC_CATEGORY_ZP: case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}
bool is_alpha(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT: case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return true;
    default: return false;
  }
}
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}
bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}
bool is_word(char32_t c) {
  if (c < 0x80) return c == '_' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  return is_alpha(c) || is_numeric(c);
}
bool is_upper(char32_t c) { return utf8proc_isupper(utf8proc_int32_t(c)); }
bool is_lower(char32_t c) { return utf8proc_islower(utf8proc_int32_t(c)); }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

void append_cased(std::string& out, char32_t c, Case to) {
  const auto i = utf8proc_int32_t(c);
  // Characters that become several (the more common ones of Unicode's SpecialCasing).
  static constexpr struct { char32_t c; std::string_view upper, title, fold; } several[] = {
      {0xdf, "SS", "Ss", "ss"},    {0x149, "\xca\xbcN", "\xca\xbcN", "\xca\xbcn"}, {0xfb00, "FF", "Ff", "ff"}, {0xfb01, "FI", "Fi", "fi"},
      {0xfb02, "FL", "Fl", "fl"},  {0xfb03, "FFI", "Ffi", "ffi"}, {0xfb04, "FFL", "Ffl", "ffl"}, {0xfb05, "ST", "St", "st"},
      {0xfb06, "ST", "St", "st"}};
  if (to != Case::lower)
    for (auto& s : several)
      if (s.c == c) return void(out += to == Case::upper ? s.upper : to == Case::title ? s.title : s.fold);
  switch (to) {
    case Case::upper: return append_char(out, char32_t(utf8proc_toupper(i)));
    case Case::title: return append_char(out, char32_t(utf8proc_totitle(i)));
    default: return append_char(out, char32_t(utf8proc_tolower(i)));
  }
}

size_t leading_space(std::string_view s) {
  size_t pos = 0;
  while (pos < s.size() && is_space(char_at(s, pos))) pos += char_bytes(static_cast<unsigned char>(s[pos]));
  return pos;
}
size_t trailing_space(std::string_view s) {
  size_t end = s.size();
  while (end > 0) {
    size_t at = end - 1;
    while (at > 0 && (static_cast<unsigned char>(s[at]) & 0xc0) == 0x80) at--;
    if (!is_space(char_at(s, at))) break;
    end = at;
  }
  return s.size() - end;
}

}  // namespace tealight::jinja
