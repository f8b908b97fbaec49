// The syntax tree of a template.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/text/jinja_value.h"

namespace tealight::jinja {

enum class Kind : uint8_t {
  // Expressions. kids:
  literal,      // none; `value_type`, `name` (string), `integer`, `number`
  name,         // none; `name`
  list, tuple,  // the items
  dict,         // key, value, key, value, ...
  attribute,    // object; `name`
  item,         // object, key
  slice,        // object, start, stop, step (null where left out)
  call,         // callee, positional arguments; `named`, `star`, `star_star`
  filter,       // input (null: the text of the enclosing block), positional arguments; as call; `name`
  test,         // as filter
  not_, negative, positive,   // one
  arithmetic,   // operands from left to right; `ops` between them
  concat, and_, or_,          // operands
  compare,      // operands; `ops` between them (Comparison)
  condition,    // test, then, else or null
  // Statements.
  data,         // `name` is the text
  output,       // the expression
  set,          // target, value
  set_block,    // target, filter or null; blocks[0]
  space_target, // none; `name`.`attribute`: an assignment target
  if_,          // conditions; blocks in the same order, one more when there is an else
  for_,         // target, iterable, filter or null; blocks[0] body, blocks[1] else; flag: recursive
  macro,        // default values (null for none); `name`, `names`, blocks[0], `uses`
  call_block,   // the call, default values; otherwise as macro
  filter_block, // the filter; blocks[0]
  with,         // target, value, target, value, ...; blocks[0]
  generation,   // blocks[0]
  break_, continue_,
};

enum class Comparison : uint8_t { eq, ne, lt, le, gt, ge, in, not_in };

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Block = std::vector<NodePtr>;

struct Node {
  Node(Kind k, uint32_t l) : kind(k), line(l) {}
  Kind kind;
  bool flag = false;
  uint8_t uses = 0;   // of macros: bits of kUses...
  uint16_t height = 1;
  uint32_t line;
  std::string name, attribute;
  Type value_type = Type::undefined;
  Int integer = 0;
  double number = 0;
  std::vector<NodePtr> kids;
  std::vector<std::pair<std::string, NodePtr>> named;
  NodePtr star, star_star;
  std::vector<uint8_t> ops;
  std::vector<std::string> names;
  std::vector<Block> blocks;
  std::vector<std::vector<std::string_view>> hidden;   // for each block that is a scope: names that are undefined at its start
};
inline constexpr uint8_t kUsesCaller = 1, kUsesKwargs = 2, kUsesVarargs = 4;

struct Template {
  Block body;
  std::vector<std::string_view> hidden;   // as Node::hidden
};

// Errors: Code::template_ with line and column. Nesting is limited, also that of the tree that comes out.
Template parse_template(std::string_view source);

// Fills Node::hidden below a template's body and returns the body's own.
std::vector<std::string_view> hide_names(Block& body);

}  // namespace tealight::jinja
