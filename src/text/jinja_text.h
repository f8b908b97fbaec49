// Text that remembers which of its bytes the template wrote and which came from a variable.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tealight::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string_view bytes, bool user) { append(bytes, user); }

  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Did any byte come from a variable? Results that no longer keep the parts apart are a user's if anything in them is.
  bool any_user() const { return !flips_.empty(); }
  bool ends_user() const { return flips_.size() & 1; }
  bool user_at(size_t pos) const;

  void append(std::string_view bytes, bool user) {
    if (bytes.empty()) return;
    if (user != ends_user()) flips_.push_back(uint32_t(bytes_.size()));
    bytes_ += bytes;
  }
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t pos, size_t n);   // the bytes [pos, pos + n), which must exist
  Text slice(size_t pos, size_t n) const {
    Text t;
    t.append(*this, pos, n);
    return t;
  }

  // Calls f(bytes, user) for each stretch of one origin.
  template <class F>
  void each_part(F f) const {
    size_t at = 0;
    bool user = false;
    for (uint32_t flip : flips_) {
      if (flip > at) f(view().substr(at, flip - at), user);
      at = flip;
      user = !user;
    }
    if (at < size()) f(view().substr(at), user);
  }
  size_t memory() const { return bytes_.capacity() + flips_.capacity() * sizeof(uint32_t); }
  std::string take() { return std::move(bytes_); }   // leaves an empty husk

 private:
  std::string bytes_;
  std::vector<uint32_t> flips_;   // offsets at which the origin changes; text begins as the template's
};

// UTF-8. All text of the interpreter is valid: sources and variables are checked where they enter.
inline size_t char_bytes(unsigned char lead) { return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4; }
char32_t char_at(std::string_view s, size_t pos);
void append_char(std::string& out, char32_t c);
size_t count_chars(std::string_view s);
size_t char_offset(std::string_view s, size_t index);   // byte offset of character `index`, s.size() when past the end
bool valid_utf8(std::string_view s);

// Character classes and case as Python's str has them.
bool is_space(char32_t c);
bool is_printable(char32_t c);
bool is_word(char32_t c);                               // \w of Python's re
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);                            // Nd
bool is_digit(char32_t c);                              // Nd and super- and subscripts
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
enum class Case { upper, lower, title, fold };
void append_cased(std::string& out, char32_t c, Case to);

// Bytes of white space at the start and at the end of s.
size_t leading_space(std::string_view s);
size_t trailing_space(std::string_view s);

}  // namespace tealight::jinja
