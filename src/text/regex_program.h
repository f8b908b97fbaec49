// What a regular expression compiles to; shared by the compiler and the matcher.
#pragma once
#include <string>
#include <vector>

#include "src/text/char_class.h"
#include "src/text/regex.h"

namespace tealight {

enum class Op : uint8_t {
  one,          // one character of class `a`
  loop,         // `low` to `high` characters of class `a`, most first, giving back one by one
  loop_lazy,    // least first
  loop_keep,    // most, giving back nothing (possessive)
  split,        // try `a`, then `b`
  jump,         // to `a`
  mark,         // register `a` = position
  progress,     // fails when the position is still register `a`: an empty round of a loop
  look,         // sub-program `a`..: goes on at `b` with the position unchanged if it matches (low = 1: if it does not)
  atomic,       // sub-program `a`..: goes on at `b` after its first match
  behind,       // the character before belongs to class `a` (low = 1: does not, or there is none)
  line_begin, line_end, text_begin, text_end, text_end_newline, word_edge, no_word_edge,
  match
};

struct Inst {
  Op op;
  uint32_t a = 0, b = 0;
  uint32_t low = 0, high = 0;
};

struct Regex::Program {
  std::string pattern;
  std::vector<Inst> code;
  std::vector<CharClass> classes;
  uint32_t n_marks = 0;
  int n_subs = 0;               // deepest nesting of look and atomic
  int leading_loop = -1;        // class of a loop x+ that every match begins with, else -1
};

constexpr uint32_t kUnbounded = UINT32_MAX;

}  // namespace tealight
