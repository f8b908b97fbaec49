// Walks the tree of a template.
#pragma once
#include "src/text/jinja_parser.h"

namespace tealight::jinja {

// The rendered text. `globals` is a dict of variables. Errors: Code::template_.
Text render(Runtime& rt, const Template& t, const Value& globals);

}  // namespace tealight::jinja
