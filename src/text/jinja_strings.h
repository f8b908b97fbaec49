// Work on strings that keeps the origin of each byte; what methods of str and filters share.
#pragma once
#include "src/text/jinja_value.h"

namespace tealight::jinja {

Value like(Runtime& rt, const Value& self, Text t);   // a string that is marked safe if `self` is
Text cased(Runtime& rt, const Text& t, Case to);
Text titled(Runtime& rt, const Text& t);
Text capitalized(Runtime& rt, const Text& t);
Text stripped(const Text& t, const Text* chars, bool left, bool right);   // chars null: white space
Text replaced(Runtime& rt, const Text& t, const Text& from, const Text& to, Int count);   // count < 0: all
Text padded(Runtime& rt, const Text& t, Int width, const Text& fill, char align);   // < > ^, c: as str.center rounds
Value joined(Runtime& rt, const Value& separator, const std::vector<Value>& items);
std::vector<Text> lines_of(const Text& t, bool keep_ends);
bool all_lower(std::string_view s);
bool all_upper(std::string_view s);
Builtin find_string_method(std::string_view name);

}  // namespace tealight::jinja
