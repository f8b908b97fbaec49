#include "src/base/error.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace tealight {

std::string_view code_name(Code c) {
  switch (c) {
    case Code::usage: return "usage_error";
    case Code::file: return "file_error";
    case Code::format: return "format_error";
    case Code::unsupported: return "unsupported";
    case Code::model: return "model_error";
    case Code::tokenizer: return "tokenizer_error";
    case Code::template_: return "template_error";
    case Code::request: return "invalid_request";
    case Code::memory: return "out_of_memory";
    case Code::shape: return "shape_error";
    case Code::internal: return "internal_error";
  }
  return "internal_error";
}

void fail(Error e) { throw e; }

void check_failed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "tealight: %s:%d: internal check failed: %s\n", file, line, what);
  std::abort();
}

void detail::append(std::string& s, double v) {
  char buf[32];
  auto r = std::to_chars(buf, buf + sizeof buf, v);
  s.append(buf, r.ptr);
}

std::string quoted(std::string_view s, size_t max_bytes) {
  static const char hex[] = "0123456789abcdef";
  std::string out = "\"";
  size_t n = 0;
  for (; n < s.size() && n < max_bytes; n++) {
    auto c = static_cast<unsigned char>(s[n]);
    if (c == '\n') out += "\\n";
    else if (c == '\t') out += "\\t";
    else if (c == '"' || c == '\\') (out += '\\') += char(c);
    else if (c < 0x20 || c >= 0x7f) ((out += "\\x") += hex[c >> 4]) += hex[c & 15];
    else out += char(c);
  }
  out += '"';
  if (n < s.size()) out += cat("... (", s.size(), " bytes)");
  return out;
}

}  // namespace tealight
