// The rules are those of Jinja 3.1 (jinja.palletsprojects.com/templates, "Whitespace Control"; trim_blocks and
// lstrip_blocks are on, one newline at the very end of the source is dropped).
#include "src/text/jinja_lexer.h"

#include <algorithm>

#include "src/text/jinja_text.h"

namespace tealight::jinja {
namespace {

std::string normalized(std::string_view source) {
  std::string s;
  s.reserve(source.size());
  for (size_t i = 0; i < source.size(); i++) {
    if (source[i] != '\r') s += source[i];
    else if (i + 1 == source.size() || source[i + 1] != '\n') s += '\n';
  }
  if (!s.empty() && s.back() == '\n') s.pop_back();
  return s;
}

struct Lexer {
  explicit Lexer(std::string_view source) : text_(normalized(source)), s_(text_) {}

  std::vector<Token> run() {
    while (pos_ < s_.size()) root();
    add(Tok::end, {}, pos_);
    return std::move(out_);
  }

 private:
  template <class... A>
  [[noreturn]] void error(size_t at, const A&... a) {
    locate(at);
    syntax_error(line_, uint32_t(at - line_start_ + 1), a...);
  }
  void locate(size_t at) {   // moves line_ to the line of `at`; never backwards over a line
    for (; located_ < at; located_++)
      if (s_[located_] == '\n') line_++, line_start_ = located_ + 1;
  }
  void add(Tok t, std::string text, size_t at) {
    locate(at);
    out_.push_back({t, line_, uint32_t(at - line_start_ + 1), std::move(text)});
  }
  bool at(size_t p, std::string_view what) const { return s_.substr(std::min(p, s_.size()), what.size()) == what; }
  size_t skip_space(size_t p) const { return p + leading_space(s_.substr(p)); }

  // Where a tag of raw text begins: `{%`, an optional sign, `word`; returns the end of the word or 0.
  size_t raw_tag(size_t p, std::string_view word) const {
    if (!at(p, "{%")) return 0;
    p += 2;
    if (at(p, "-") || at(p, "+")) p++;
    p = skip_space(p);
    if (!at(p, word)) return 0;
    return skip_space(p + word.size());
  }

  // Appends the data [begin, end) before a tag whose sign is at end + 2.
  void data_before_tag(size_t begin, size_t end, bool is_variable) {
    std::string_view text = s_.substr(begin, end - begin);
    const char sign = end + 2 < s_.size() ? s_[end + 2] : 0;
    if (sign == '-') {
      text.remove_suffix(trailing_space(text));
    } else if (sign != '+' && !is_variable) {
      const size_t line = text.rfind('\n') + 1;   // npos + 1 is 0
      if ((line > 0 || line_starting_) && leading_space(text.substr(line)) == text.size() - line && line < text.size())
        text = text.substr(0, line);
    }
    if (!text.empty()) add(Tok::data, std::string(text), begin);
  }
  // Behind `%}` or `#}`: one newline goes.
  size_t trim_newline(size_t p) const { return at(p, "\n") ? p + 1 : p; }
  void leave(size_t p) {
    line_starting_ = p > 0 && s_[p - 1] == '\n';
    pos_ = p;
  }

  void root() {
    size_t tag = pos_;
    for (;; tag++) {
      tag = s_.find('{', tag);
      if (tag == s_.npos || tag + 1 >= s_.size()) tag = s_.npos;
      if (tag == s_.npos || s_[tag + 1] == '%' || s_[tag + 1] == '{' || s_[tag + 1] == '#') break;
    }
    if (tag == s_.npos) {
      add(Tok::data, std::string(s_.substr(pos_)), pos_);
      pos_ = s_.size();
      return;
    }
    const char kind = s_[tag + 1];
    data_before_tag(pos_, tag, kind == '{');
    const bool sign = at(tag + 2, "-") || at(tag + 2, "+");
    if (kind == '#') return comment(tag, tag + 2 + sign);
    if (kind == '%' && begin_raw(tag)) return;
    add(kind == '{' ? Tok::variable_begin : Tok::block_begin, {}, tag);
    pos_ = tag + 2 + sign;
    expression(kind == '{');
  }

  void comment(size_t tag, size_t p) {
    const size_t end = s_.find("#}", p);
    if (end == s_.npos) error(tag, "missing end of comment tag");
    const char sign = end > p ? s_[end - 1] : 0;
    leave(sign == '-' ? skip_space(end + 2) : sign == '+' ? end + 2 : trim_newline(end + 2));
  }

  bool begin_raw(size_t tag) {
    size_t p = raw_tag(tag, "raw");
    if (!p) return false;
    if (at(p, "-%}")) p = skip_space(p + 3);
    else if (at(p, "%}")) p += 2;
    else return false;
    leave(p);
    for (size_t end = p;; end++) {
      end = s_.find("{%", end);
      if (end == s_.npos) error(tag, "missing end of raw directive");
      size_t q = raw_tag(end, "endraw");
      if (!q) continue;
      if (at(q, "-%}")) q = skip_space(q + 3);
      else if (at(q, "+%}")) q += 3;
      else if (at(q, "%}")) q = trim_newline(q + 2);
      else continue;
      data_before_tag(p, end, false);
      leave(q);
      return true;
    }
  }

  // Tokens up to the end of the tag.
  void expression(bool is_variable) {
    const size_t tag = pos_ - 2;
    std::string open;   // brackets to close
    for (;;) {
      pos_ = skip_space(pos_);
      if (pos_ >= s_.size()) error(tag, "the tag is not closed");
      if (open.empty() && end_of_tag(is_variable)) return;
      const char c = s_[pos_];
      if (c == '"' || c == '\'') string_literal();
      else if (c >= '0' && c <= '9') number_literal();
      else if (is_word(char_at(s_, pos_))) name();
      else op(open);
    }
  }

  bool end_of_tag(bool is_variable) {
    const std::string_view mark = is_variable ? "}}" : "%}";
    const char sign = s_[pos_];
    const size_t signed_ = sign == '-' || (sign == '+' && !is_variable) ? 1 : 0;
    if (!at(pos_ + signed_, mark)) return false;
    add(is_variable ? Tok::variable_end : Tok::block_end, {}, pos_);
    const size_t p = pos_ + signed_ + 2;
    leave(signed_ && sign == '-' ? skip_space(p) : signed_ || is_variable ? p : trim_newline(p));
    return true;
  }

  void name() {
    const size_t begin = pos_;
    while (pos_ < s_.size() && is_word(char_at(s_, pos_))) pos_ += char_bytes(static_cast<unsigned char>(s_[pos_]));
    add(Tok::name, std::string(s_.substr(begin, pos_ - begin)), begin);
  }

  // Digits of a base with single underscores between them; returns their end (p when there is none).
  template <class Digit>
  size_t digits(size_t p, Digit is_one) const {
    if (p >= s_.size() || !is_one(s_[p])) return p;
    for (p++; p < s_.size(); p++)
      if (!is_one(s_[p]) && !(s_[p] == '_' && p + 1 < s_.size() && is_one(s_[p + 1]))) break;
    return p;
  }

  void number_literal() {
    const auto decimal = [](char c) { return c >= '0' && c <= '9'; };
    const size_t begin = pos_;
    size_t end = begin;
    Tok type = Tok::integer;
    const char base = begin + 1 < s_.size() && s_[begin] == '0' ? char(s_[begin + 1] | 0x20) : 0;
    const size_t after = begin + 2 + at(begin + 2, "_");
    if (base == 'x') end = digits(after, [&](char c) { return decimal(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); });
    else if (base == 'o') end = digits(after, [](char c) { return c >= '0' && c <= '7'; });
    else if (base == 'b') end = digits(after, [](char c) { return c == '0' || c == '1'; });
    if (end <= begin + 2) {
      end = digits(begin, decimal);
      const bool may_be_float = begin == 0 || s_[begin - 1] != '.';
      const auto fraction = [&](size_t p) { return at(p, ".") ? digits(p + 1, decimal) : p; };
      size_t p = may_be_float ? fraction(end) : end;
      if (p <= end + 1) p = end;
      if (may_be_float && (at(p, "e") || at(p, "E"))) {
        const size_t mantissa = p + 1 + (at(p + 1, "+") || at(p + 1, "-"));
        if (const size_t q = digits(mantissa, decimal); q > mantissa) p = q;
      }
      if (p > end) type = Tok::number, end = p;
      else if (s_[begin] == '0')   // 0123 is no number: the zeros stand alone
        end = digits(begin, [](char c) { return c == '0'; });
    }
    std::string text(s_.substr(begin, end - begin));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    add(type, std::move(text), begin);
    pos_ = end;
  }

  void op(std::string& open) {
    static constexpr std::string_view ops[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                               "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"};
    const auto found = std::find_if(std::begin(ops), std::end(ops), [&](std::string_view o) { return at(pos_, o); });
    if (found == std::end(ops)) error(pos_, "unexpected character ", quoted(s_.substr(pos_, char_bytes(static_cast<unsigned char>(s_[pos_])))));
    const char c = (*found)[0];
    if (c == '(') open += ')';
    else if (c == '[') open += ']';
    else if (c == '{') open += '}';
    else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) error(pos_, "unexpected '", c, "'");
      if (open.back() != c) error(pos_, "unexpected '", c, "', expected '", open.back(), "'");
      open.pop_back();
    }
    add(Tok::op, std::string(*found), pos_);
    pos_ += found->size();
  }

  // Escapes are those of Python's string literals.
  void string_literal() {
    const size_t begin = pos_;
    const char quote = s_[pos_++];
    std::string text;
    for (;; pos_++) {
      if (pos_ >= s_.size()) error(begin, "the string is not closed");
      if (s_[pos_] == quote) break;
      if (s_[pos_] != '\\') { text += s_[pos_]; continue; }
      if (++pos_ >= s_.size()) error(begin, "the string is not closed");
      escape(text);
    }
    pos_++;
    add(Tok::string, std::move(text), begin);
  }

  void escape(std::string& text) {   // pos_ is at the character after the backslash; ends at the last of the escape
    static constexpr std::string_view letters = "\n\\'\"abfnrtv", meant = "\n\\'\"\a\b\f\n\r\t\v";
    const char c = s_[pos_];
    if (c == '\n') return;   // a continued line
    if (const size_t i = letters.find(c); i != letters.npos) {
      text += meant[i];
    } else if (c >= '0' && c <= '7') {
      append_char(text, char32_t(number(3, 8, 1)));
    } else if (c == 'x' || c == 'u' || c == 'U') {
      pos_++;
      const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const uint64_t v = number(n, 16, n);
      if (v > 0x10ffff || (v >= 0xd800 && v < 0xe000)) error(pos_, "escape \\", c, " is not a character");
      append_char(text, char32_t(v));
    } else if (c == 'N') {
      error(pos_, "escapes \\N{...} are not supported");
    } else {
      (text += '\\') += c;
    }
  }
  uint64_t number(size_t most, unsigned base, size_t least) {
    uint64_t v = 0;
    size_t n = 0;
    for (; n < most && pos_ + n < s_.size(); n++) {
      const char c = s_[pos_ + n];
      const unsigned d = c >= '0' && c <= '9' ? unsigned(c - '0') : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? unsigned((c | 0x20) - 'a' + 10) : 99;
      if (d >= base) break;
      v = v * base + d;
    }
    if (n < least) error(pos_, "truncated escape in a string");
    pos_ += n - 1;
    return v;
  }

  const std::string text_;
  const std::string_view s_;
  size_t pos_ = 0, located_ = 0, line_start_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> out_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace tealight::jinja
