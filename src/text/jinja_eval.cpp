#include "src/text/jinja_eval.h"

#include <algorithm>

namespace tealight::jinja {
namespace {

constexpr int kLevelsPerDepth = 10;   // of the tree walk's recursion, for one of Limits::max_depth (calls of macros and loops)
constexpr size_t kNamesPerStep = 16;  // names are looked for one by one: long lists cost further steps

// A scope. Assignments go to the innermost; look-ups walk outwards. `if` opens none.
struct Frame : Object {
  Frame(Runtime& r, Ref<Frame> p) : Object(r), parent(std::move(p)) {}
  void clear() override {
    parent = Ref<Frame>();
    names.clear();
  }
  void set(std::string_view name, Value v) {
    rt.step(names.size() / kNamesPerStep);
    for (auto& [n, value] : names)
      if (n == name) return void(value = std::move(v));
    names.emplace_back(name, std::move(v));
  }
  void hide(const std::vector<std::string_view>& hidden) {
    for (std::string_view name : hidden) names.emplace_back(name, Value());
  }
  const Value* find(std::string_view name) const {
    for (const Frame* f = this; f; f = f->parent.get()) {
      rt.step(f->names.size() / kNamesPerStep);
      for (auto& [n, value] : f->names)
        if (n == name) return &value;
    }
    return nullptr;
  }
  Ref<Frame> parent;
  std::vector<std::pair<std::string_view, Value>> names;   // views into the tree, or of static text
};

struct Macro : Object {
  Macro(Runtime& r, const Node& n, Ref<Frame> s) : Object(r), node(n), scope(std::move(s)) {}
  void clear() override { scope = Ref<Frame>(); }
  const Node& node;   // macro or call_block
  Ref<Frame> scope;   // where it was defined
};

enum class Flow { on, break_, continue_ };

class Interpreter {
 public:
  Interpreter(Runtime& r, const Value& globals) : rt(r), globals_(globals) {}

  Text run(const Template& t) {
    Text out;
    out_ = &out;
    Ref<Frame> scope(new Frame(rt, {}));
    scope->hide(t.hidden);
    execute(t.body, scope);
    return out;
  }

 private:
  using Scope = const Ref<Frame>&;

  struct Level {   // one level of recursion
    explicit Level(Interpreter& i) : in(i) {
      if (++in.levels_ > in.rt.limits.max_depth * kLevelsPerDepth) in.rt.error("nested too deeply");
    }
    ~Level() { in.levels_--; }
    Interpreter& in;
  };
  struct Call {   // one macro or recursive loop
    explicit Call(Interpreter& i) : in(i) {
      if (++in.calls_ > in.rt.limits.max_depth) in.rt.error("calls nested more than ", in.rt.limits.max_depth, " deep");
    }
    ~Call() { in.calls_--; }
    Interpreter& in;
  };

  // --- statements ---

  // What `body` writes, as a value.
  template <class F>
  Value capture(F body) {
    Text text;
    Text* outer = std::exchange(out_, &text);
    body();
    out_ = outer;
    return rt.text(std::move(text));
  }

  Flow execute(const Block& block, Scope scope) {
    Level level(*this);
    for (const NodePtr& n : block)
      if (const Flow f = execute(*n, scope); f != Flow::on) return f;
    return Flow::on;
  }

  Flow execute(const Node& n, Scope scope) {
    rt.step();
    rt.line = n.line;
    switch (n.kind) {
      case Kind::data: write(n.name); break;
      case Kind::output: append_str(rt, *out_, evaluate(*n.kids[0], scope)); break;
      case Kind::set: assign(*n.kids[0], evaluate(*n.kids[1], scope), scope); break;
      case Kind::if_: return if_statement(n, scope);
      case Kind::for_: return for_loop(n, scope, evaluate(*n.kids[1], scope), 0);
      case Kind::macro: scope->set(n.name, Value(Type::macro, new Macro(rt, n, scope))); break;
      case Kind::break_: return Flow::break_;
      case Kind::continue_: return Flow::continue_;
      default: return scoped_block(n, scope);
    }
    return Flow::on;
  }

  void write(std::string_view s) {
    rt.bound(out_->size() + s.size());
    rt.step(s.size() / 64);
    out_->append(s, false);
  }

  Flow if_statement(const Node& n, Scope scope) {
    for (size_t i = 0; i < n.kids.size(); i++)
      if (truth(evaluate(*n.kids[i], scope))) return execute(n.blocks[i], scope);
    return n.blocks.size() > n.kids.size() ? execute(n.blocks.back(), scope) : Flow::on;
  }

  [[gnu::noinline]] Flow scoped_block(const Node& n, Scope scope) {
    Ref<Frame> inner(new Frame(rt, scope));
    if (n.kind != Kind::call_block) inner->hide(n.hidden[0]);
    Flow flow = Flow::on;
    const auto body = [&] { return capture([&] { flow = execute(n.blocks[0], inner); }); };
    switch (n.kind) {
      case Kind::with:
        for (size_t i = 0; i < n.kids.size(); i += 2) assign(*n.kids[i], evaluate(*n.kids[i + 1], scope), inner);
        [[fallthrough]];
      case Kind::generation: return execute(n.blocks[0], inner);
      case Kind::set_block: {
        Value text = body();
        if (flow == Flow::on) assign(*n.kids[0], n.kids[1] ? filter(*n.kids[1], inner, &text) : text, scope);
        return flow;
      }
      case Kind::filter_block: {
        const Value text = body();
        if (flow == Flow::on) append_str(rt, *out_, filter(*n.kids[0], inner, &text));
        return flow;
      }
      default: break;   // call_block
    }
    Args args = arguments(*n.kids[0], 1, scope);
    args.named.emplace_back("caller", Value(Type::macro, new Macro(rt, n, scope)));
    append_str(rt, *out_, call(evaluate(*n.kids[0]->kids[0], scope), args));
    return flow;
  }

  void assign(const Node& target, Value v, Scope scope) {
    if (target.kind == Kind::name) return scope->set(target.name, std::move(v));
    if (target.kind == Kind::space_target) {
      const Value space = name(target.name, scope);
      if (!space.is(Type::space)) rt.error("cannot assign attribute on non-namespace object");
      return space.space().members->set(rt.text(target.attribute, false), std::move(v));
    }
    if (!iterable(v)) rt.error("cannot unpack non-iterable ", type_name(v), " object");
    std::vector<Value> items = iterate(rt, v);
    if (items.size() != target.kids.size()) rt.error("expected ", target.kids.size(), " values to unpack, got ", items.size());
    for (size_t i = 0; i < items.size(); i++) assign(*target.kids[i], std::move(items[i]), scope);
  }

  struct ForLoop : Loop {
    ForLoop(Interpreter& i, const Node& n, Scope s, std::vector<Value> v) : Loop(i.rt), in(i), node(n), scope(s), items(std::move(v)) {
      charge(256 + items.capacity() * sizeof(Value));
    }
    void clear() override {
      Loop::clear();
      scope = Ref<Frame>();
      items.clear();
    }
    bool pull(Value& item) override {
      while (at < items.size()) {
        item = std::move(items[at++]);
        in.rt.step();
        if (!node.kids[2]) return true;
        Ref<Frame> f(new Frame(rt, scope));
        in.assign(*node.kids[0], item, f);
        if (truth(in.evaluate(*node.kids[2], f))) return true;
      }
      return false;
    }
    Interpreter& in;
    const Node& node;
    Ref<Frame> scope;
    std::vector<Value> items;
    size_t at = 0;
  };

  [[gnu::noinline]] Flow for_loop(const Node& n, Scope scope, const Value& iterable_value, int depth0) {
    Level level(*this);
    Ref<ForLoop> loop(new ForLoop(*this, n, scope, iterate(rt, iterable_value)));
    loop->depth0 = depth0;
    const Value self(Type::loop, loop.get());
    Ref<Frame> inner;
    while (loop->advance()) {
      if (!inner || inner->refs > 1) inner = Ref<Frame>(new Frame(rt, scope));   // a macro may have kept it
      inner->names.clear();
      inner->hide(n.hidden[0]);
      inner->set("loop", self);
      assign(*n.kids[0], loop->current, inner);
      if (execute(n.blocks[0], inner) == Flow::break_) return Flow::on;
    }
    if (loop->index0 >= 0 || n.blocks.size() < 2) return Flow::on;
    inner = Ref<Frame>(new Frame(rt, scope));
    inner->hide(n.hidden[1]);
    return execute(n.blocks[1], inner);
  }

  // --- expressions ---

  Value evaluate(const Node& n, Scope scope) {
    Level level(*this);
    rt.step();
    rt.line = n.line;
    switch (n.kind) {
      case Kind::literal: return literal(n);
      case Kind::name: return name(n.name, scope);
      case Kind::attribute: return get_attribute(rt, evaluate(*n.kids[0], scope), n.name);
      case Kind::item: return item(n, scope);
      case Kind::slice: return slice(n, scope);
      case Kind::list: return rt.list(all(n, scope));
      case Kind::tuple: return rt.list(all(n, scope), Type::tuple);
      case Kind::dict: return dict(n, scope);
      case Kind::call: return call_expression(n, scope);
      case Kind::filter: return filter(n, scope, nullptr);
      case Kind::test: return test(n, scope);
      case Kind::not_: return Value::of(!truth(evaluate(*n.kids[0], scope)));
      case Kind::negative: return negate(rt, evaluate(*n.kids[0], scope));
      case Kind::positive: return negate(rt, negate(rt, evaluate(*n.kids[0], scope)));
      case Kind::arithmetic: return arithmetic_chain(n, scope);
      case Kind::concat: return concat(n, scope);
      case Kind::compare: return comparison(n, scope);
      case Kind::and_:
      case Kind::or_: return logic(n, scope);
      case Kind::condition: {
        if (truth(evaluate(*n.kids[0], scope))) return evaluate(*n.kids[1], scope);
        return n.kids[2] ? evaluate(*n.kids[2], scope)
                         : rt.undefined("the inline if-expression evaluated to false and no else section was defined.");
      }
      default: rt.error("not an expression");
    }
  }

  [[gnu::noinline]] Value literal(const Node& n) {
    switch (n.value_type) {
      case Type::none: return Value::none();
      case Type::boolean: return Value::of(n.integer != 0);
      case Type::integer: return Value::of(n.integer);
      case Type::number: return Value::of(n.number);
      default: return rt.text(n.name, false);
    }
  }

  [[gnu::noinline]] Value name(const std::string& s, Scope scope) {
    if (const Value* v = scope->find(s)) return v->is_undefined() && !v->object() ? rt.undefined(cat("'", s, "' is undefined")) : *v;
    if (const Value* v = globals_.dict().find(s)) return *v;
    if (Builtin f = find_global(s)) return Value(Type::function, new Function(rt, "function", f, Value()));
    return rt.undefined(cat("'", s, "' is undefined"));
  }

  [[gnu::noinline]] Value item(const Node& n, Scope scope) {
    const Value object = evaluate(*n.kids[0], scope);
    return get_item(rt, object, evaluate(*n.kids[1], scope));
  }
  [[gnu::noinline]] Value slice(const Node& n, Scope scope) {
    const auto part = [&](size_t i) { return n.kids[i] ? evaluate(*n.kids[i], scope) : Value::none(); };
    const Value object = part(0), start = part(1), stop = part(2);
    return get_slice(rt, object, start, stop, part(3));
  }
  std::vector<Value> all(const Node& n, Scope scope) {
    std::vector<Value> out;
    out.reserve(n.kids.size());
    for (const NodePtr& k : n.kids) out.push_back(evaluate(*k, scope));
    return out;
  }
  [[gnu::noinline]] Value dict(const Node& n, Scope scope) {
    Value d(Type::dict, new Dict(rt));
    for (size_t i = 0; i < n.kids.size(); i += 2) {
      const Value key = evaluate(*n.kids[i], scope);
      d.dict().set(key, evaluate(*n.kids[i + 1], scope));
    }
    return d;
  }

  [[gnu::noinline]] Value arithmetic_chain(const Node& n, Scope scope) {
    Value v = evaluate(*n.kids[0], scope);
    for (size_t i = 0; i < n.ops.size(); i++) v = arithmetic(rt, Op(n.ops[i]), v, evaluate(*n.kids[i + 1], scope));
    return v;
  }
  [[gnu::noinline]] Value concat(const Node& n, Scope scope) {
    Text out;
    for (const NodePtr& k : n.kids) append_str(rt, out, evaluate(*k, scope));
    return rt.text(std::move(out));
  }
  [[gnu::noinline]] Value comparison(const Node& n, Scope scope) {
    Value left = evaluate(*n.kids[0], scope);
    for (size_t i = 0; i < n.ops.size(); i++) {
      Value right = evaluate(*n.kids[i + 1], scope);
      if (!holds(Comparison(n.ops[i]), left, right)) return Value::of(false);
      left = std::move(right);
    }
    return Value::of(true);
  }
  bool holds(Comparison c, const Value& a, const Value& b) {
    switch (c) {
      case Comparison::eq: return equal(rt, a, b);
      case Comparison::ne: return !equal(rt, a, b);
      case Comparison::in: return contains(rt, b, a);
      case Comparison::not_in: return !contains(rt, b, a);
      default: break;
    }
    const int order = compare(rt, a, b);
    return order == 0 ? c == Comparison::le || c == Comparison::ge
                      : order == (c == Comparison::lt || c == Comparison::le ? -1 : 1);
  }
  [[gnu::noinline]] Value logic(const Node& n, Scope scope) {
    Value v;
    for (const NodePtr& k : n.kids) {
      v = evaluate(*k, scope);
      if (truth(v) == (n.kind == Kind::or_)) break;
    }
    return v;
  }

  // --- calls ---

  // The arguments of a call, filter or test; positional ones are the kids from `first` on.
  Args arguments(const Node& n, size_t first, Scope scope) {
    Args args;
    for (size_t i = first; i < n.kids.size(); i++) args.positional.push_back(evaluate(*n.kids[i], scope));
    for (auto& [key, value] : n.named) args.named.emplace_back(key, evaluate(*value, scope));
    if (n.star)
      for (Value& v : iterate(rt, evaluate(*n.star, scope))) args.positional.push_back(std::move(v));
    if (n.star_star) {
      const Value d = evaluate(*n.star_star, scope);
      if (!d.is(Type::dict)) rt.error("argument after ** must be a mapping, not ", type_name(d));
      for (auto& [key, value] : d.dict().entries) {
        if (!key.is_string()) rt.error("keywords must be strings");
        args.named.emplace_back(key.str(), value);
      }
      kept_.push_back(d);   // the names are views into it
    }
    return args;
  }

  [[gnu::noinline]] Value call_expression(const Node& n, Scope scope) {
    const Value callee = evaluate(*n.kids[0], scope);
    return call(callee, arguments(n, 1, scope));
  }

  Value call(const Value& callee, const Args& args) {
    switch (callee.type()) {
      case Type::function: return callee.function().call(rt, callee.function().self, args);
      case Type::macro: return call_macro(*callee.as<Macro>(), args);
      case Type::loop: return call_loop(static_cast<ForLoop&>(callee.loop()), args);
      case Type::undefined: undefined_error(rt, callee);
      default: rt.error("'", type_name(callee), "' object is not callable");
    }
  }

  // Filters a given text (a block's) or the node's own input.
  [[gnu::noinline]] Value filter(const Node& n, Scope scope, const Value* text) {
    const Builtin f = find_filter(n.name);
    const Value input = !n.kids[0] ? *text : n.kids[0]->kind == Kind::filter ? filter(*n.kids[0], scope, text) : evaluate(*n.kids[0], scope);
    rt.line = n.line;
    if (!f) rt.error("No filter named '", n.name, "'.");
    return f(rt, input, arguments(n, 1, scope));
  }
  [[gnu::noinline]] Value test(const Node& n, Scope scope) {
    const Builtin f = find_test(n.name);
    if (!f) rt.error("No test named '", n.name, "'.");
    const Value input = evaluate(*n.kids[0], scope);
    return f(rt, input, arguments(n, 1, scope));
  }

  Value call_loop(ForLoop& loop, const Args& args) {
    Call call(*this);
    if (!loop.node.flag) rt.error("the loop must have the 'recursive' marker to be called recursively");
    if (args.positional.size() != 1) rt.error("loop() takes one argument");
    const Value keep(Type::loop, &loop);
    return capture([&] { for_loop(loop.node, loop.scope, args.positional[0], loop.depth0 + 1); });
  }

  [[gnu::noinline]] Value call_macro(const Macro& m, const Args& args) {
    Call call(*this);
    const Ref<Macro> keep(const_cast<Macro*>(&m));
    const Node& n = m.node;
    const size_t skip = n.kind == Kind::call_block ? 1 : 0;   // defaults follow the call
    Ref<Frame> frame(new Frame(rt, m.scope));
    std::vector<bool> used(args.named.size());
    const auto named = [&](std::string_view key) -> const Value* {
      rt.step(args.named.size() / kNamesPerStep);
      for (size_t i = 0; i < args.named.size(); i++)
        if (args.named[i].first == key) return used[i] = true, &args.named[i].second;
      return nullptr;
    };
    for (size_t i = 0; i < n.names.size(); i++) {
      const Value* given = i < args.positional.size() ? &args.positional[i] : named(n.names[i]);
      if (given) frame->set(n.names[i], *given);
      else if (n.kids[i + skip]) frame->set(n.names[i], evaluate(*n.kids[i + skip], frame));
      else frame->set(n.names[i], rt.undefined(cat("parameter '", n.names[i], "' was not provided")));
    }
    if (n.uses & kUsesCaller && !frame_has(*frame, "caller")) {
      const Value* caller = named("caller");
      frame->set("caller", caller && !caller->is_none() ? *caller : rt.undefined("No caller defined"));
    }
    extra_arguments(n, *frame, args, used);
    frame->hide(n.hidden[0]);
    return capture([&] { execute(n.blocks[0], frame); });
  }
  static bool frame_has(const Frame& f, std::string_view name) {
    return std::any_of(f.names.begin(), f.names.end(), [&](auto& e) { return e.first == name; });
  }
  // What the signature does not name goes to kwargs and varargs where the macro mentions them.
  void extra_arguments(const Node& n, Frame& frame, const Args& args, const std::vector<bool>& used) {
    Value rest(Type::dict, new Dict(rt));
    for (size_t i = 0; i < args.named.size(); i++) {
      if (used[i]) continue;
      if (!(n.uses & kUsesKwargs)) rt.error("macro '", n.name, "' takes no keyword argument '", args.named[i].first, "'");
      rest.dict().set(rt.text(args.named[i].first, false), args.named[i].second);
    }
    if (n.uses & kUsesKwargs) frame.set("kwargs", rest);
    if (args.positional.size() > n.names.size() && !(n.uses & kUsesVarargs))
      rt.error("macro '", n.name, "' takes not more than ", n.names.size(), " argument(s)");
    if (n.uses & kUsesVarargs) {
      const size_t at = std::min(n.names.size(), args.positional.size());
      frame.set("varargs", rt.list({args.positional.begin() + ptrdiff_t(at), args.positional.end()}, Type::tuple));
    }
  }

  Runtime& rt;
  const Value& globals_;
  Text* out_ = nullptr;
  int levels_ = 0, calls_ = 0;
  std::vector<Value> kept_;
};

}  // namespace

Text render(Runtime& rt, const Template& t, const Value& globals) { return Interpreter(rt, globals).run(t); }

}  // namespace tealight::jinja
