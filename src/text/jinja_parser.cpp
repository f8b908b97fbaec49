// Recursive descent over the grammar of Jinja 3.1 (jinja.palletsprojects.com/templates).
#include "src/text/jinja_parser.h"

#include <algorithm>
#include <initializer_list>

#include "src/text/jinja_lexer.h"

namespace tealight::jinja {
namespace {

constexpr int kMaxNesting = 150;      // of the parser's own recursion
constexpr uint16_t kMaxHeight = 300;  // of the tree: chains like a.b.c.d grow it without recursion

struct Parser {
  explicit Parser(std::vector<Token> t) : tokens_(std::move(t)) {}

  Block run() { return statements({}); }

 private:
  using Words = std::initializer_list<std::string_view>;

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() {
    const Token& t = peek();
    if (at_ + 1 < tokens_.size()) at_++;
    return t;
  }
  bool skip_op(std::string_view op) { return peek().is_op(op) && (next(), true); }
  bool skip_name(std::string_view word) { return peek().is_name(word) && (next(), true); }
  static std::string describe(const Token& t) {
    switch (t.type) {
      case Tok::end: return "end of template";
      case Tok::block_end: return "end of statement block";
      case Tok::variable_end: return "end of print statement";
      case Tok::block_begin: return "begin of statement block";
      case Tok::variable_begin: return "begin of print statement";
      case Tok::data: return "template data";
      default: return quoted(t.text, 40);
    }
  }
  template <class... A>
  [[noreturn]] void error(const A&... a) const { syntax_error(peek().line, peek().column, a...); }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) error("expected '", op, "', got ", describe(peek()));
  }
  void expect(Tok t, std::string_view what) {
    if (peek().type != t) error("expected ", what, ", got ", describe(peek()));
    next();
  }
  std::string expect_name() {
    if (peek().type != Tok::name) error("expected a name, got ", describe(peek()));
    return next().text;
  }

  struct Nested {
    explicit Nested(Parser& p) : p_(p) {
      if (++p.nesting_ > kMaxNesting) p.error("nested too deeply");
    }
    ~Nested() { p_.nesting_--; }
    Parser& p_;
  };

  NodePtr make(Kind k) const { return std::make_unique<Node>(k, peek().line); }
  void raise(Node& n, const NodePtr& kid) const {
    if (kid && kid->height >= n.height) n.height = uint16_t(kid->height + 1);
    if (n.height > kMaxHeight) error("nested too deeply");
  }
  void add(const NodePtr& n, NodePtr kid) const {
    raise(*n, kid);
    n->kids.push_back(std::move(kid));
  }
  void add_block(const NodePtr& n, Block b) const {
    for (const NodePtr& s : b) raise(*n, s);
    n->blocks.push_back(std::move(b));
  }

  // --- statements ---

  // Statements up to (not including) one of the words in a `{% word`; none: to the end of the template.
  Block statements(Words ends) {
    Nested nested(*this);
    Block out;
    for (;;) {
      const Token& t = peek();
      if (t.type == Tok::data) {
        auto n = make(Kind::data);
        n->name = next().text;
        out.push_back(std::move(n));
      } else if (t.type == Tok::variable_begin) {
        auto n = make(Kind::output);
        next();
        add(n, tuple_or_expression());
        expect(Tok::variable_end, "end of print statement");
        out.push_back(std::move(n));
      } else if (t.type == Tok::block_begin) {
        next();
        for (std::string_view end : ends)
          if (peek().is_name(end)) return out;
        statement(out);
        expect(Tok::block_end, "end of statement block");
      } else {
        if (ends.size()) error("unexpected end of template, expected '", *ends.begin(), "'");
        return out;
      }
    }
  }

  // The body of a statement whose tag is not closed yet, and the word that ends it (still in its own open tag).
  Block body(Words ends) {
    skip_op(":");
    expect(Tok::block_end, "end of statement block");
    return statements(ends);
  }

  void statement(Block& out) {
    if (peek().type != Tok::name) error("tag name expected");
    const std::string& tag = peek().text;
    if (tag == "print") return print(out);
    if (tag == "if") return out.push_back(if_statement());
    if (tag == "for") return out.push_back(for_statement());
    if (tag == "set") return out.push_back(set_statement());
    if (tag == "macro") return out.push_back(macro());
    if (tag == "call") return out.push_back(call_block());
    if (tag == "filter") return out.push_back(filter_block());
    if (tag == "with") return out.push_back(with());
    if (tag == "generation") return out.push_back(generation());
    if (tag == "break" || tag == "continue") {
      if (!in_loop_) error("'", tag, "' outside of a loop");
      out.push_back(make(tag == "break" ? Kind::break_ : Kind::continue_));
      next();
      return;
    }
    error("unknown tag ", quoted(tag, 40));
  }

  void print(Block& out) {
    next();
    for (bool first = true; peek().type != Tok::block_end; first = false) {
      if (!first) expect_op(",");
      auto n = make(Kind::output);
      add(n, expression());
      out.push_back(std::move(n));
    }
  }

  NodePtr if_statement() {
    auto n = make(Kind::if_);
    next();
    for (;;) {
      add(n, tuple_or_expression(false));
      add_block(n, body({"elif", "else", "endif"}));
      if (skip_name("elif")) continue;
      if (next().text == "else") {
        add_block(n, body({"endif"}));
        next();
      }
      return n;
    }
  }

  NodePtr for_statement() {
    auto n = make(Kind::for_);
    next();
    add(n, target("in", false));
    if (!skip_name("in")) error("expected 'in', got ", describe(peek()));
    add(n, tuple_or_expression(false, "recursive"));
    add(n, skip_name("if") ? expression() : nullptr);
    n->flag = skip_name("recursive");
    const bool outer = std::exchange(in_loop_, true);
    add_block(n, body({"endfor", "else"}));
    in_loop_ = outer;
    if (next().text == "else") {
      add_block(n, body({"endfor"}));
      next();
    }
    return n;
  }

  NodePtr set_statement() {
    auto n = make(Kind::set);
    next();
    add(n, target("", true));
    if (skip_op("=")) {
      add(n, tuple_or_expression());
      return n;
    }
    n->kind = Kind::set_block;
    add(n, peek().is_op("|") ? filters(nullptr) : nullptr);
    add_block(n, body({"endset"}));
    next();
    return n;
  }

  void signature(const NodePtr& n) {
    expect_op("(");
    bool defaults = false;
    while (!peek().is_op(")")) {
      if (!n->names.empty()) expect_op(",");
      n->names.push_back(expect_name());
      if (skip_op("=")) defaults = true, add(n, expression());
      else if (defaults) error("non-default argument follows default argument");
      else add(n, nullptr);
    }
    next();
  }

  void macro_body(const NodePtr& n, std::string_view end) {
    const bool outer_loop = std::exchange(in_loop_, false);
    const uint8_t outer_uses = std::exchange(uses_, 0);
    add_block(n, body({end}));
    next();
    n->uses = uses_;
    uses_ |= outer_uses;
    in_loop_ = outer_loop;
  }

  NodePtr macro() {
    auto n = make(Kind::macro);
    next();
    n->name = expect_name();
    signature(n);
    macro_body(n, "endmacro");
    return n;
  }

  NodePtr call_block() {
    auto n = make(Kind::call_block);
    next();
    n->name = "caller";
    auto defaults = make(Kind::list);
    if (peek().is_op("(")) {
      signature(n);
      std::swap(defaults->kids, n->kids);
    }
    auto call = expression();
    if (call->kind != Kind::call) error("expected call");
    add(n, std::move(call));
    for (auto& d : defaults->kids) add(n, std::move(d));
    macro_body(n, "endcall");
    return n;
  }

  NodePtr filter_block() {
    auto n = make(Kind::filter_block);
    next();
    add(n, filters(filter(nullptr)));
    add_block(n, body({"endfilter"}));
    next();
    return n;
  }

  NodePtr with() {
    auto n = make(Kind::with);
    next();
    while (peek().type != Tok::block_end) {
      if (!n->kids.empty()) expect_op(",");
      add(n, target("", false));
      expect_op("=");
      add(n, expression());
    }
    add_block(n, body({"endwith"}));
    next();
    return n;
  }

  NodePtr generation() {   // marks what the assistant says, for training; renders its body
    auto n = make(Kind::generation);
    next();
    const bool outer = std::exchange(in_loop_, false);
    add_block(n, body({"endgeneration"}));
    in_loop_ = outer;
    next();
    return n;
  }

  // A name, names separated by commas (with or without parentheses), or name.attribute where `space` allows it.
  NodePtr target(std::string_view end, bool space) {
    NodePtr t = comma_list([&] { return primary(space); }, end, false);
    check_target(*t);
    return t;
  }
  void check_target(const Node& t) const {
    if (t.kind == Kind::tuple)
      for (auto& k : t.kids) check_target(*k);
    else if (t.kind != Kind::name && t.kind != Kind::space_target) error("cannot assign to that");
  }

  // --- expressions ---

  template <class F>
  NodePtr comma_list(F item, std::string_view end_word, bool parentheses) {
    auto tuple = make(Kind::tuple);
    bool is_tuple = false;
    for (;;) {
      if (!tuple->kids.empty()) expect_op(",");
      if (peek().type == Tok::variable_end || peek().type == Tok::block_end || peek().is_op(")") ||
          (!end_word.empty() && peek().is_name(end_word)))
        break;
      add(tuple, item());
      if (!peek().is_op(",")) break;
      is_tuple = true;
    }
    if (is_tuple) return tuple;
    if (!tuple->kids.empty()) return std::move(tuple->kids[0]);
    if (!parentheses) error("expected an expression, got ", describe(peek()));
    return tuple;
  }
  NodePtr tuple_or_expression(bool conditional = true, std::string_view end_word = {}, bool parentheses = false) {
    return comma_list([&] { return conditional ? expression() : or_expression(); }, end_word, parentheses);
  }

  NodePtr expression() {
    Nested nested(*this);
    NodePtr value = or_expression();
    while (skip_name("if")) {
      auto n = make(Kind::condition);
      add(n, or_expression());
      add(n, std::move(value));
      add(n, skip_name("else") ? expression() : nullptr);
      value = std::move(n);
    }
    return value;
  }

  // first (separator operand)*: one node with all operands, or just the first. `separator` consumes and returns true.
  template <class Operand, class Separator>
  NodePtr chain(Kind kind, Operand operand, Separator separator) {
    NodePtr first = (this->*operand)();
    NodePtr n;
    while (separator(n)) {
      if (n->kids.empty()) add(n, std::move(first));
      add(n, (this->*operand)());
    }
    TEALIGHT_CHECK(!n || n->kind == kind);
    return n ? std::move(n) : std::move(first);
  }
  auto by_word(Kind kind, std::string_view word) {
    return [this, kind, word](NodePtr& n) {
      if (!peek().is_name(word)) return false;
      if (!n) n = make(kind);
      next();
      return true;
    };
  }
  template <size_t N>
  auto by_ops(const std::pair<std::string_view, Op> (&ops)[N]) {
    return [this, &ops](NodePtr& n) {
      for (auto& [text, op] : ops)
        if (peek().is_op(text)) {
          if (!n) n = make(Kind::arithmetic);
          n->ops.push_back(uint8_t(op));
          next();
          return true;
        }
      return false;
    };
  }

  NodePtr or_expression() { return chain(Kind::or_, &Parser::and_expression, by_word(Kind::or_, "or")); }
  NodePtr and_expression() { return chain(Kind::and_, &Parser::not_expression, by_word(Kind::and_, "and")); }
  NodePtr not_expression() {
    if (!peek().is_name("not")) return comparison();
    Nested nested(*this);
    auto n = make(Kind::not_);
    next();
    add(n, not_expression());
    return n;
  }
  NodePtr comparison() {
    return chain(Kind::compare, &Parser::sum, [this](NodePtr& n) {
      static constexpr std::string_view ops[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not"};
      const auto found = std::find_if(std::begin(ops), std::end(ops), [&](std::string_view o) {
        return o == "in" || o == "not" ? peek().is_name(o) : peek().is_op(o);
      });
      if (found == std::end(ops) || (*found == "not" && !peek(1).is_name("in"))) return false;
      if (!n) n = make(Kind::compare);
      n->ops.push_back(uint8_t(found - std::begin(ops)));
      if (next().text == "not") next();
      return true;
    });
  }
  NodePtr sum() {
    static constexpr std::pair<std::string_view, Op> ops[] = {{"+", Op::add}, {"-", Op::sub}};
    return chain(Kind::arithmetic, &Parser::concatenation, by_ops(ops));
  }
  NodePtr concatenation() {
    return chain(Kind::concat, &Parser::product, [this](NodePtr& n) {
      if (!peek().is_op("~")) return false;
      if (!n) n = make(Kind::concat);
      next();
      return true;
    });
  }
  NodePtr product() {
    static constexpr std::pair<std::string_view, Op> ops[] = {
        {"*", Op::mul}, {"/", Op::div}, {"//", Op::floordiv}, {"%", Op::mod}};
    return chain(Kind::arithmetic, &Parser::power, by_ops(ops));
  }
  NodePtr power() {
    static constexpr std::pair<std::string_view, Op> ops[] = {{"**", Op::pow}};
    return chain(Kind::arithmetic, &Parser::filtered, by_ops(ops));
  }
  NodePtr filtered() { return unary(true); }

  NodePtr unary(bool with_filter) {
    Nested nested(*this);
    NodePtr n;
    if (peek().is_op("-") || peek().is_op("+")) {
      n = make(peek().is_op("-") ? Kind::negative : Kind::positive);
      next();
      add(n, unary(false));
    } else {
      n = primary(false);
    }
    n = postfix(std::move(n));
    if (!with_filter) return n;
    for (;;) {
      if (peek().is_op("|")) n = filters(std::move(n));
      else if (peek().is_name("is")) n = test(std::move(n));
      else if (peek().is_op("(")) n = call(std::move(n));
      else return n;
    }
  }

  NodePtr primary(bool space) {
    Nested nested(*this);
    const Token& t = peek();
    auto n = make(Kind::literal);
    if (t.type == Tok::name) {
      n->name = next().text;
      const std::string& w = n->name;
      if (w == "true" || w == "True" || w == "false" || w == "False") {
        n->value_type = Type::boolean;
        n->integer = w[0] == 't' || w[0] == 'T';
      } else if (w == "none" || w == "None") {
        n->value_type = Type::none;
      } else if (space && skip_op(".")) {
        n->kind = Kind::space_target;
        n->attribute = expect_name();
      } else {
        n->kind = Kind::name;
        uses_ |= w == "caller" ? kUsesCaller : w == "kwargs" ? kUsesKwargs : w == "varargs" ? kUsesVarargs : 0;
      }
      return n;
    }
    if (t.type == Tok::string) {
      n->value_type = Type::string;
      while (peek().type == Tok::string) n->name += next().text;
      return n;
    }
    if (t.type == Tok::integer || t.type == Tok::number) {
      number(*n, t);
      next();
      return n;
    }
    if (skip_op("(")) {
      n = space ? comma_list([&] { return primary(space); }, {}, true) : tuple_or_expression(true, {}, true);
      expect_op(")");
      return n;
    }
    if (t.is_op("[") || t.is_op("{")) {
      const std::string_view close = t.is_op("[") ? "]" : "}";
      n->kind = close == "]" ? Kind::list : Kind::dict;
      next();
      while (!peek().is_op(close)) {
        if (!n->kids.empty()) expect_op(",");
        if (peek().is_op(close)) break;
        add(n, expression());
        if (n->kind == Kind::dict) expect_op(":"), add(n, expression());
      }
      next();
      return n;
    }
    error("unexpected ", describe(t));
  }

  void number(Node& n, const Token& t) const {
    if (t.type == Tok::number) {
      n.value_type = Type::number;
      parse_number(t.text, n.number);
      return;
    }
    n.value_type = Type::integer;
    const char kind = t.text.size() > 1 ? char(t.text[1] | 0x20) : 0;
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    for (char c : std::string_view(t.text).substr(base == 10 ? 0 : 2)) {
      const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
      if (n.integer > (((Int(1) << 126) - digit) / base)) error("the number is too large");
      n.integer = n.integer * base + digit;
    }
  }

  NodePtr postfix(NodePtr n) {
    for (;;) {
      if (peek().is_op(".")) n = attribute(std::move(n));
      else if (peek().is_op("[")) n = subscript(std::move(n));
      else if (peek().is_op("(")) n = call(std::move(n));
      else return n;
    }
  }

  NodePtr attribute(NodePtr object) {
    auto n = make(Kind::attribute);
    next();
    add(n, std::move(object));
    if (peek().type == Tok::integer) {
      n->kind = Kind::item;
      add(n, primary(false));
    } else if (peek().type == Tok::name) {
      n->name = next().text;
    } else {
      error("expected name or number");
    }
    return n;
  }

  NodePtr subscript(NodePtr object) {
    auto n = make(Kind::item);
    next();
    add(n, std::move(object));
    NodePtr first = peek().is_op(":") ? nullptr : expression();
    if (peek().is_op(",")) {
      auto key = make(Kind::tuple);
      add(key, std::move(first));
      while (skip_op(",")) add(key, expression());
      first = std::move(key);
    }
    add(n, std::move(first));
    if (skip_op(":")) {
      n->kind = Kind::slice;
      const auto part = [&] { return peek().is_op("]") || peek().is_op(":") ? nullptr : expression(); };
      add(n, part());
      add(n, skip_op(":") ? part() : nullptr);
    }
    expect_op("]");
    return n;
  }

  void arguments(const NodePtr& n) {
    expect_op("(");
    for (bool first = true; !peek().is_op(")"); first = false) {
      if (!first) {
        expect_op(",");
        if (peek().is_op(")")) break;
      }
      bool valid = !n->star_star;
      if (skip_op("*")) {
        valid &= !n->star;
        n->star = expression();
        raise(*n, n->star);
      } else if (skip_op("**")) {
        n->star_star = expression();
        raise(*n, n->star_star);
      } else if (peek().type == Tok::name && peek(1).is_op("=")) {
        std::string key = next().text;
        next();
        n->named.emplace_back(std::move(key), expression());
        raise(*n, n->named.back().second);
      } else {
        valid &= !n->star && n->named.empty();
        add(n, expression());
      }
      if (!valid) error("invalid syntax for function call expression");
    }
    next();
  }

  NodePtr call(NodePtr callee) {
    auto n = make(Kind::call);
    add(n, std::move(callee));
    arguments(n);
    return n;
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (skip_op(".")) name += '.' + expect_name();
    return name;
  }
  NodePtr filter(NodePtr input) {   // at its name
    auto n = make(Kind::filter);
    n->name = dotted_name();
    add(n, std::move(input));
    if (peek().is_op("(")) arguments(n);
    return n;
  }
  NodePtr filters(NodePtr n) {
    while (skip_op("|")) n = filter(std::move(n));
    return n;
  }

  NodePtr test(NodePtr input) {
    auto n = make(Kind::test);
    next();
    const bool negated = skip_name("not");
    n->name = dotted_name();
    add(n, std::move(input));
    const Token& t = peek();
    if (t.is_op("(")) {
      arguments(n);
    } else if ((t.type == Tok::name && !t.is_name("else") && !t.is_name("or") && !t.is_name("and")) || t.type == Tok::string ||
               t.type == Tok::integer || t.type == Tok::number || t.is_op("[") || t.is_op("{")) {
      if (t.is_name("is")) error("you cannot chain multiple tests with is");
      add(n, postfix(primary(false)));
    }
    if (!negated) return n;
    auto negation = make(Kind::not_);
    add(negation, std::move(n));
    return negation;
  }

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  bool in_loop_ = false;
  uint8_t uses_ = 0;
};

}  // namespace

Template parse_template(std::string_view source) {
  if (!valid_utf8(source)) fail(Code::template_, "the template is not valid UTF-8");
  if (source.size() > (size_t(1) << 30)) fail(Code::template_, "the template has ", source.size(), " bytes, more than 1 GiB");
  Template t{Parser(tokenize(source)).run(), {}};
  t.hidden = hide_names(t.body);
  return t;
}

}  // namespace tealight::jinja
