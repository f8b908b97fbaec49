// Template source to tokens, with the white-space rules of trim_blocks and lstrip_blocks.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.h"

namespace tealight::jinja {

enum class Tok : uint8_t { data, variable_begin, variable_end, block_begin, block_end, name, string, integer, number, op, end };

struct Token {
  Tok type;
  uint32_t line, column;   // from 1; columns count bytes
  std::string text;        // data and strings with escapes undone; names, numbers and operators as written
  bool is(Tok t, std::string_view s) const { return type == t && text == s; }
  bool is_op(std::string_view s) const { return is(Tok::op, s); }
  bool is_name(std::string_view s) const { return is(Tok::name, s); }
};

template <class... A>
[[noreturn]] void syntax_error(uint32_t line, uint32_t column, const A&... a) {
  fail(Code::template_, "line ", line, ", column ", column, ": ", a...);
}

// All tokens, ending with one of type `end`. Errors: Code::template_ with line and column.
std::vector<Token> tokenize(std::string_view source);

}  // namespace tealight::jinja
