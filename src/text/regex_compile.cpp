// Pattern text -> tree -> program.
#include <algorithm>
#include <memory>
#include <optional>

#include "src/base/error.h"
#include "src/text/regex_program.h"

namespace tealight {
namespace {

constexpr int kMaxDepth = 64, kMaxRepeats = 8;
constexpr size_t kMaxProgram = 20'000, kMaxPattern = 100'000;
constexpr size_t kMaxVisits = 10 * kMaxProgram;   // of nodes while they are emitted: (){100000}{100000} emits nothing
constexpr uint32_t kMaxCount = 100'000;

enum class Mode { greedy, lazy, possessive };

struct Node {
  enum Kind { empty, one, cat, alt, repeat, look, behind, atomic, assertion } kind = empty;
  uint32_t cls = 0;                 // one, behind
  bool negative = false;            // look, behind
  uint32_t low = 0, high = 0;       // repeat
  Mode mode = Mode::greedy;         // repeat
  Op op = Op::match;                // assertion
  std::vector<std::unique_ptr<Node>> kids;
};
using NodePtr = std::unique_ptr<Node>;

NodePtr make(Node::Kind kind) {
  auto n = std::make_unique<Node>();
  n->kind = kind;
  return n;
}

class Parser {
 public:
  Parser(std::string_view p, std::vector<CharClass>& classes) : p_(p), classes_(classes) {}

  NodePtr whole() {
    NodePtr n = alternatives(0);
    if (at_ < p_.size()) error("unbalanced )");
    return n;
  }

  [[noreturn]] void error(std::string_view why) const {
    fail(Code::tokenizer, "pattern ", quoted(p_, 200), ", byte ", at_, ": ", why);
  }

 private:
  bool more() const { return at_ < p_.size(); }
  bool eat(std::string_view s) {
    if (p_.substr(at_, s.size()) != s) return false;
    at_ += s.size();
    return true;
  }
  uint32_t next() {
    if (!more()) error("ends early");
    const Utf8Char u = utf8_at(p_, at_);
    at_ += u.bytes;
    return u.c;
  }

  NodePtr alternatives(int depth) {
    if (depth > kMaxDepth) error("groups nest too deeply");
    const bool fold = fold_;
    NodePtr first = sequence(depth);
    if (more() && p_[at_] == '|') {
      NodePtr alt = make(Node::alt);
      alt->kids.push_back(std::move(first));
      while (eat("|")) alt->kids.push_back(sequence(depth));
      first = std::move(alt);
    }
    fold_ = fold;  // (?i) lasts to the end of its group
    return first;
  }

  NodePtr sequence(int depth) {
    NodePtr cat = make(Node::cat);
    while (more() && p_[at_] != '|' && p_[at_] != ')') {
      NodePtr n = quantified(atom(depth));
      if (n) cat->kids.push_back(std::move(n));
    }
    return cat;
  }

  // Null for (?i), which matches nothing and has no node.
  NodePtr atom(int depth) {
    if (eat("(")) return group(depth);
    if (eat("[")) return single(char_class(depth));
    if (eat(".")) {
      CharClass c;
      c.ranges.push_back({'\n', '\n'});
      c.negated = true;
      return single(std::move(c));
    }
    if (eat("^")) return assertion(Op::line_begin);
    if (eat("$")) return assertion(Op::line_end);
    if (eat("\\")) return escape();
    if (p_[at_] == '*' || p_[at_] == '+' || p_[at_] == '?') error("nothing to repeat");
    return literal(next());
  }

  NodePtr group(int depth) {
    NodePtr wrap;
    const bool fold = fold_;
    if (eat("?:")) {
    } else if (eat("?>")) {
      wrap = make(Node::atomic);
    } else if (eat("?=") || eat("?!")) {
      wrap = make(Node::look);
      wrap->negative = p_[at_ - 1] == '!';
    } else if (eat("?<=") || eat("?<!")) {
      wrap = make(Node::behind);
      wrap->negative = p_[at_ - 1] == '!';
    } else if (eat("?i:")) {
      fold_ = true;
    } else if (eat("?-i:")) {
      fold_ = false;
    } else if (eat("?i)")) {
      fold_ = true;
      return nullptr;
    } else if (p_.substr(at_, 1) == "?") {
      error("this kind of group is not supported");
    }
    NodePtr inner = alternatives(depth + 1);
    if (!eat(")")) error("missing )");
    fold_ = fold;
    if (!wrap) return inner;
    if (wrap->kind == Node::behind) {
      while (inner->kind == Node::cat && inner->kids.size() == 1) inner = NodePtr(std::move(inner->kids[0]));
      if (inner->kind != Node::one) error("look-behind of more than one character is not supported");
      wrap->cls = inner->cls;
      return wrap;
    }
    wrap->kids.push_back(std::move(inner));
    return wrap;
  }

  NodePtr quantified(NodePtr n) {
    for (int depth = 0; n && more(); depth++) {
      if (depth == kMaxRepeats) error("too many quantifiers in a row");
      uint32_t low, high;
      const size_t start = at_;
      if (eat("?")) low = 0, high = 1;
      else if (eat("*")) low = 0, high = kUnbounded;
      else if (eat("+")) low = 1, high = kUnbounded;
      else if (!(p_[at_] == '{' && counts(low, high))) return n;
      NodePtr r = make(Node::repeat);
      r->low = low;
      r->high = high;
      if (eat("?")) r->mode = Mode::lazy;
      else if (p_[start] != '{' && eat("+")) r->mode = Mode::possessive;   // Ruby: x{n,m}+ is a repeated repeat
      r->kids.push_back(std::move(n));
      n = std::move(r);
    }
    return n;
  }

  // {n} {n,} {n,m} {,m}; anything else is a literal brace.
  bool counts(uint32_t& low, uint32_t& high) {
    const size_t start = at_++;
    auto number = [&]() -> std::optional<uint32_t> {
      uint64_t v = 0;
      const size_t from = at_;
      for (; more() && p_[at_] >= '0' && p_[at_] <= '9' && v < 10 * kMaxCount; at_++) v = v * 10 + uint64_t(p_[at_] - '0');
      if (at_ == from) return std::nullopt;
      if (v > kMaxCount) error("repeat count too large");
      return uint32_t(v);
    };
    auto a = number();
    if (eat("}") && a) {
      low = high = *a;
      return true;
    }
    if (eat(",")) {
      auto b = number();
      if (eat("}") && (a || b)) {
        low = a.value_or(0);
        high = b.value_or(kUnbounded);
        if (low > high) error("repeat counts are the wrong way round");
        return true;
      }
    }
    at_ = start;
    return false;
  }

  NodePtr assertion(Op op) {
    NodePtr n = make(Node::assertion);
    n->op = op;
    return n;
  }
  NodePtr single(CharClass c) {
    c.fold = c.fold || fold_;
    c.finish();
    NodePtr n = make(Node::one);
    n->cls = uint32_t(classes_.size());
    classes_.push_back(std::move(c));
    return n;
  }
  NodePtr literal(uint32_t c) {
    CharClass k;
    k.ranges.push_back({c, c});
    return single(std::move(k));
  }

  NodePtr escape() {
    if (!more()) error("ends in a backslash");
    if (eat("b")) return assertion(Op::word_edge);
    if (eat("B")) return assertion(Op::no_word_edge);
    if (eat("A")) return assertion(Op::text_begin);
    if (eat("z")) return assertion(Op::text_end);
    if (eat("Z")) return assertion(Op::text_end_newline);
    CharClass c;
    if (set_escape(c)) {
      // Oniguruma counts superscript digits and fractions of Latin-1 as word characters, but not inside [].
      if (c.word) c.ranges = {{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}};
      return single(std::move(c));
    }
    return literal(char_escape());
  }

  // \s \d \w \h \p{..} and their negations, after the backslash.
  bool set_escape(CharClass& c) {
    if (eat("s") || eat("S")) c.space = true;
    else if (eat("d") || eat("D")) c.categories = category_mask("Nd");
    else if (eat("w") || eat("W")) c.word = true;
    else if (eat("h") || eat("H")) c.ranges = {{'0', '9'}, {'a', 'f'}, {'A', 'F'}};
    else if (eat("p") || eat("P")) return property(c), true;
    else return false;
    c.negated = p_[at_ - 1] >= 'A' && p_[at_ - 1] <= 'Z';
    return true;
  }

  void property(CharClass& c) {
    c.negated = p_[at_ - 1] == 'P';
    std::string_view name;
    if (eat("{")) {
      if (eat("^")) c.negated = !c.negated;
      const size_t end = p_.find('}', at_);
      if (end == p_.npos) error("\\p{ without }");
      name = p_.substr(at_, end - at_);
      at_ = end + 1;
    } else {
      name = p_.substr(at_, 1);
      at_ += name.size();
    }
    static constexpr std::pair<std::string_view, std::string_view> kLong[] = {
        {"Letter", "L"}, {"Mark", "M"}, {"Number", "N"}, {"Punctuation", "P"}, {"Punct", "P"}, {"Symbol", "S"}, {"Separator", "Z"}, {"Other", "C"}};
    for (auto [full, abbreviation] : kLong)
      if (name == full) name = abbreviation;
    c.categories = category_mask(name);
    if (name == "Han") c.han = true;
    else if (!c.categories) error(cat("unknown property ", quoted(name)));
  }

  uint32_t char_escape() {
    const uint32_t c = next();
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'f': return '\f';
      case 'v': return '\v';
      case 'a': return '\a';
      case 'e': return 27;
      case '0': return 0;
      case 'x': return eat("{") ? hex(1, 8, true) : hex(1, 2, false);
      case 'u': return hex(4, 4, false);
      default: break;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9')) error(cat("escape \\", char(c), " is not supported"));
    return c;
  }
  uint32_t hex(int least, int most, bool braced) {
    uint32_t v = 0;
    int n = 0;
    for (; n < most && more(); n++, at_++) {
      const char c = p_[at_];
      if (c >= '0' && c <= '9') v = v * 16 + uint32_t(c - '0');
      else if ((c | 32) >= 'a' && (c | 32) <= 'f') v = v * 16 + uint32_t((c | 32) - 'a' + 10);
      else break;
    }
    if (n < least || (braced && !eat("}")) || v > 0x10ffff) error("bad hexadecimal escape");
    return v;
  }

  // After the [.
  CharClass char_class(int depth) {
    if (depth > kMaxDepth) error("classes nest too deeply");
    CharClass c;
    const bool negated = eat("^");
    bool first = true;
    std::vector<CharClass> operands;      // what && joins
    while (true) {
      if (!more()) error("class without ]");
      if (p_[at_] == ']' && !first) break;
      first = false;
      if (eat("&&")) {
        operands.push_back(std::move(c));
        c = CharClass();
        continue;
      }
      if (p_.substr(at_, 2) == "[:") error("POSIX classes are not supported");
      if (eat("[")) {
        c.nested.push_back(char_class(depth + 1));
        continue;
      }
      uint32_t low;
      if (eat("\\")) {
        CharClass set;
        if (set_escape(set)) {
          c.nested.push_back(std::move(set));
          continue;
        }
        low = eat("b") ? 8 : char_escape();
      } else {
        low = next();
      }
      uint32_t high = low;
      if (more() && p_[at_] == '-' && at_ + 1 < p_.size() && p_[at_ + 1] != ']') {
        const size_t dash = at_++;
        if (p_[at_] == '[' || (p_[at_] == '\\' && at_ + 1 < p_.size() && std::string_view("sSdDwWhHpP").find(p_[at_ + 1]) != std::string_view::npos)) {
          at_ = dash + 1;                 // a dash before a set is a literal
          c.ranges.push_back({'-', '-'});
        } else {
          high = eat("\\") ? char_escape() : next();
          if (high < low) error("range is the wrong way round");
        }
      }
      c.ranges.push_back({low, high});
    }
    at_++;
    if (!operands.empty()) {
      operands.push_back(std::move(c));
      c = std::move(operands[0]);
      for (size_t i = 1; i < operands.size(); i++) c.and_.push_back(std::move(operands[i]));
    }
    merge_sets(c);
    c.negated = negated;
    c.fold = fold_;
    return c;
  }
  // Plain members (\s, \p{L}) are looked up with their union at once.
  static void merge_sets(CharClass& c) {
    std::erase_if(c.nested, [&](const CharClass& n) {
      if (n.negated || !n.ranges.empty() || !n.nested.empty() || !n.and_.empty() || n.han) return false;
      c.categories |= n.categories;
      c.space |= n.space;
      c.word |= n.word;
      return true;
    });
  }

  std::string_view p_;
  std::vector<CharClass>& classes_;
  size_t at_ = 0;
  bool fold_ = false;
};

struct Emitter {
  Regex::Program& out;
  const Parser& parser;
  size_t visits = 0;

  uint32_t here() const { return uint32_t(out.code.size()); }
  uint32_t add(Inst i) {
    if (out.code.size() >= kMaxProgram) parser.error("the pattern is too large");
    out.code.push_back(i);
    return here() - 1;
  }

  static bool can_be_empty(const Node& n) {
    switch (n.kind) {
      case Node::one: return false;
      case Node::cat: return std::all_of(n.kids.begin(), n.kids.end(), [](const NodePtr& k) { return can_be_empty(*k); });
      case Node::alt: return std::any_of(n.kids.begin(), n.kids.end(), [](const NodePtr& k) { return can_be_empty(*k); });
      case Node::repeat: return n.low == 0 || can_be_empty(*n.kids[0]);
      case Node::atomic: return can_be_empty(*n.kids[0]);
      default: return true;
    }
  }

  void emit(const Node& n, int subs) {
    if (++visits > kMaxVisits) parser.error("the pattern is too large");
    switch (n.kind) {
      case Node::empty: return;
      case Node::one: add({Op::one, n.cls}); return;
      case Node::assertion: add({n.op}); return;
      case Node::behind: add({Op::behind, n.cls, 0, n.negative}); return;
      case Node::cat:
        for (const NodePtr& k : n.kids) emit(*k, subs);
        return;
      case Node::alt: return alt(n, subs);
      case Node::look: return sub(Op::look, *n.kids[0], n.negative, subs);
      case Node::atomic: return sub(Op::atomic, *n.kids[0], false, subs);
      case Node::repeat: return repeat(n, subs);
    }
  }
  void alt(const Node& n, int subs) {
    std::vector<uint32_t> ends;
    for (size_t i = 0; i < n.kids.size(); i++) {
      const bool last = i + 1 == n.kids.size();
      const uint32_t split = last ? 0 : add({Op::split});
      if (!last) out.code[split].a = here();
      emit(*n.kids[i], subs);
      if (last) break;
      ends.push_back(add({Op::jump}));
      out.code[split].b = here();
    }
    for (uint32_t e : ends) out.code[e].a = here();
  }
  void sub(Op op, const Node& inner, bool negative, int subs) {
    out.n_subs = std::max(out.n_subs, subs + 1);
    const uint32_t at = add({op, 0, 0, negative});
    out.code[at].a = here();
    emit(inner, subs + 1);
    add({Op::match});
    out.code[at].b = here();
  }
  void repeat(const Node& n, int subs) {
    const Node* inner = n.kids[0].get();
    while (inner->kind == Node::cat && inner->kids.size() == 1) inner = inner->kids[0].get();
    if (inner->kind == Node::one) {
      const Op op = n.mode == Mode::greedy ? Op::loop : n.mode == Mode::lazy ? Op::loop_lazy : Op::loop_keep;
      add({op, inner->cls, 0, n.low, n.high});
      return;
    }
    if (n.mode == Mode::possessive) {
      out.n_subs = std::max(out.n_subs, subs + 1);
      const uint32_t at = add({Op::atomic});
      out.code[at].a = here();
      group(n, *inner, subs + 1);
      add({Op::match});
      out.code[at].b = here();
      return;
    }
    group(n, *inner, subs);
  }
  void group(const Node& n, const Node& inner, int subs) {
    const bool lazy = n.mode == Mode::lazy;
    auto branch = [&](uint32_t split, uint32_t body, uint32_t end) {
      out.code[split].a = lazy ? end : body;
      out.code[split].b = lazy ? body : end;
    };
    for (uint32_t i = 0; i < n.low; i++) emit(inner, subs);
    if (n.high == kUnbounded) {
      const uint32_t split = add({Op::split}), body = here();
      const bool guard = can_be_empty(inner);
      const uint32_t mark = guard ? out.n_marks++ : 0;
      if (guard) add({Op::mark, mark});
      emit(inner, subs);
      if (guard) add({Op::progress, mark});
      add({Op::jump, split});
      branch(split, body, here());
      return;
    }
    std::vector<uint32_t> splits;
    for (uint32_t i = n.low; i < n.high; i++) {
      splits.push_back(add({Op::split}));
      emit(inner, subs);
    }
    for (uint32_t s : splits) branch(s, s + 1, here());
  }
};

}  // namespace

Regex Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPattern || !utf8_valid(pattern))
    fail(Code::tokenizer, "pattern ", quoted(pattern, 200), ": not UTF-8 or longer than ", kMaxPattern, " bytes");
  auto program = std::make_unique<Program>();
  program->pattern = pattern;
  Parser parser(program->pattern, program->classes);
  const NodePtr root = parser.whole();
  Emitter{*program, parser}.emit(*root, 0);
  program->code.push_back({Op::match});
  const Inst& first = program->code[0];
  // Only where the root is one sequence is the first instruction what every match begins with.
  if (root->kind == Node::cat && first.op == Op::loop && first.low == 1 && first.high == kUnbounded) program->leading_loop = int(first.a);
  return Regex(std::move(program));
}

}  // namespace tealight
