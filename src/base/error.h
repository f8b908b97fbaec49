// The one exception type, thrown in one place.
#pragma once
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>

namespace tealight {

enum class Code { usage, file, format, unsupported, model, tokenizer, template_, request, memory, shape, internal };

// A short stable word for a code, as JSON answers carry it ("file_error", "format_error", ...).
std::string_view code_name(Code c);

class Error : public std::exception {
 public:
  Error(Code c, std::string m) : code(c), message(std::move(m)) {}
  const char* what() const noexcept override { return message.c_str(); }
  Code code;
  std::string message;
};

// Throws. The only `throw` in the project, so that a build without exceptions can end the process here.
[[noreturn]] void fail(Error e);

namespace detail {
inline void append(std::string& s, std::string_view v) { s += v; }
inline void append(std::string& s, char v) { s += v; }
void append(std::string& s, double v);
template <class T>
  requires std::is_integral_v<T>
void append(std::string& s, T v) {
  if constexpr (std::is_same_v<T, bool>) s += v ? "true" : "false";
  else s += std::to_string(v);
}
}  // namespace detail

// cat("tensor ", name, ": ", n, " rows"): text from strings, characters and numbers (doubles in shortest form).
template <class... A>
std::string cat(const A&... a) {
  std::string s;
  (detail::append(s, a), ...);
  return s;
}

template <class... A>
[[noreturn]] void fail(Code c, const A&... a) {
  fail(Error{c, cat(a...)});
}

// A wrong assumption of ours, never of the input: prints the place and aborts. Stays on in release builds.
[[noreturn]] void check_failed(const char* what, const char* file, int line);
#define TEALIGHT_CHECK(cond) ((cond) ? void(0) : ::tealight::check_failed(#cond, __FILE__, __LINE__))

// Text made safe to print in a message: control characters and bytes that are not UTF-8 are escaped, long text is cut.
std::string quoted(std::string_view s, size_t max_bytes = 80);

}  // namespace tealight
