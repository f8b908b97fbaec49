// Which names a scope hides from the start. Jinja resolves names when it compiles: a name whose first mention in a scope
// is an assignment belongs to that scope, so that a loop or macro further in, run before the assignment, finds it
// undefined even where a variable of that name was given.
#include <map>

#include "src/text/jinja_parser.h"

namespace tealight::jinja {
namespace {

enum class Start { parameter, outer, variable, undefined };   // what a name is when its scope is entered

// The names of one scope, or of one branch of an `if` in it.
struct Names {
  struct Entry {
    Start start;
    bool assigned;
  };
  const Names* outer;           // the scope around this one
  const Names* base = nullptr;  // of a branch: what was there before it
  std::map<std::string_view, Entry> own = {};

  const Entry* in_scope(std::string_view name) const {
    for (const Names* n = this; n; n = n->base)
      if (auto e = n->own.find(name); e != n->own.end()) return &e->second;
    return nullptr;
  }
  bool is_outer(std::string_view name) const {
    for (const Names* n = outer; n; n = n->outer)
      if (n->in_scope(name)) return true;
    return false;
  }
  void assign(std::string_view name) {
    const Entry* e = in_scope(name);
    own[name] = {e ? e->start : is_outer(name) ? Start::outer : Start::undefined, true};
  }
  void mention(std::string_view name) {
    if (!in_scope(name) && !is_outer(name)) own[name] = {Start::variable, false};
  }
  // After an `if`: what only some of its branches assign keeps its value from outside.
  void merge(std::initializer_list<const Names*> branches) {
    std::map<std::string_view, size_t> times;
    for (const Names* b : branches)
      for (auto& [name, e] : b->own) {
        const Entry* before = in_scope(name);
        if (e.assigned && !(before && before->assigned)) times[name]++;
      }
    for (const Names* b : branches)
      for (auto& [name, e] : b->own) {
        const Entry* before = in_scope(name);
        own[name] = {e.start, e.assigned || (before && before->assigned)};
      }
    for (auto& [name, n] : times)
      if (n < branches.size()) own[name].start = is_outer(name) ? Start::outer : Start::variable;
  }
};

void visit(const Node& n, Names& names);
void visit(const Block& block, Names& names) {
  for (const NodePtr& n : block) visit(*n, names);
}

void assign_target(const Node& n, Names& names, bool parameter) {
  if (n.kind == Kind::tuple) {
    for (const NodePtr& k : n.kids) assign_target(*k, names, parameter);
  } else if (n.kind == Kind::space_target) {
    names.mention(n.name);
  } else if (parameter) {
    names.own[n.name] = {Start::parameter, true};
  } else {
    names.assign(n.name);
  }
}

void visit_expression(const Node& n, Names& names) {
  if (n.kind == Kind::name) names.mention(n.name);
  for (const NodePtr& k : n.kids)
    if (k) visit_expression(*k, names);
  for (auto& [key, value] : n.named) visit_expression(*value, names);
  if (n.star) visit_expression(*n.star, names);
  if (n.star_star) visit_expression(*n.star_star, names);
}

void visit_if(const Node& n, Names& names) {
  const size_t conditions = n.kids.size();
  visit_expression(*n.kids[0], names);
  Names first{names.outer, &names}, middle{names.outer, &names}, last{names.outer, &names};
  visit(n.blocks[0], first);
  for (size_t i = 1; i < conditions; i++) {   // each elif is an `if` without an else
    visit_expression(*n.kids[i], middle);
    Names branch{middle.outer, &middle}, none{middle.outer, &middle};
    visit(n.blocks[i], branch);
    middle.merge({&branch, &none});
  }
  if (n.blocks.size() > conditions) visit(n.blocks[conditions], last);
  names.merge({&first, &middle, &last});
}

// A statement as the scope that it stands in sees it.
void visit(const Node& n, Names& names) {
  switch (n.kind) {
    case Kind::output: return visit_expression(*n.kids[0], names);
    case Kind::set:
      visit_expression(*n.kids[1], names);
      return assign_target(*n.kids[0], names, false);
    case Kind::set_block: return assign_target(*n.kids[0], names, false);
    case Kind::if_: return visit_if(n, names);
    case Kind::for_: return visit_expression(*n.kids[1], names);
    case Kind::macro: return names.assign(n.name);
    case Kind::call_block:
    case Kind::filter_block: return visit_expression(*n.kids[0], names);
    case Kind::with:
      for (size_t i = 1; i < n.kids.size(); i += 2) visit_expression(*n.kids[i], names);
      return;
    default: return;
  }
}

std::vector<std::string_view> hidden(const Names& names) {
  std::vector<std::string_view> out;
  for (auto& [name, e] : names.own)
    if (e.start == Start::undefined) out.push_back(name);
  return out;
}

void descend(Block& block, const Names& names);

// The scopes that a statement opens.
void descend(Node& n, const Names& names) {
  if (n.kind == Kind::if_) {
    for (Block& b : n.blocks) descend(b, names);
    return;
  }
  for (Block& b : n.blocks) {
    Names inner{&names};
    if (n.kind == Kind::for_ && &b == &n.blocks[0]) {
      inner.own["loop"] = {Start::parameter, true};
      assign_target(*n.kids[0], inner, true);
    }
    if (n.kind == Kind::with)
      for (size_t i = 0; i < n.kids.size(); i += 2) assign_target(*n.kids[i], inner, true);
    for (const std::string& parameter : n.names) inner.own[parameter] = {Start::parameter, true};
    visit(b, inner);
    n.hidden.push_back(hidden(inner));
    descend(b, inner);
  }
}

void descend(Block& block, const Names& names) {
  for (NodePtr& n : block) descend(*n, names);
}

}  // namespace

std::vector<std::string_view> hide_names(Block& body) {
  Names names{nullptr};
  visit(body, names);
  descend(body, names);
  return hidden(names);
}

}  // namespace tealight::jinja
