// The tests behind `is`, and the global functions.
#include <algorithm>
#include <cmath>

#include "src/text/jinja_strings.h"

namespace tealight::jinja {
namespace {

template <bool (*kTest)(const Value&)>
Value plain(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "test", args, {});
  return Value::of(kTest(v));
}

enum class Relation { eq, ne, lt, le, gt, ge };
template <Relation kRelation>
Value relation(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "test", args, {""}, 1);
  if (kRelation == Relation::eq || kRelation == Relation::ne) return Value::of(equal(rt, v, *p[0]) == (kRelation == Relation::eq));
  const int c = compare(rt, v, *p[0]);
  switch (kRelation) {
    case Relation::lt: return Value::of(c == -1);
    case Relation::le: return Value::of(c == -1 || c == 0);
    case Relation::gt: return Value::of(c == 1);
    default: return Value::of(c == 1 || c == 0);
  }
}

Value divisible(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "divisibleby", args, {"num"}, 1);
  return Value::of(!truth(arithmetic(rt, Op::mod, v, *p[0])));
}
template <int kRest>
Value parity(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "even", args, {});
  return Value::of(equal(rt, arithmetic(rt, Op::mod, v, Value::of(2)), Value::of(kRest)));
}
Value is_in(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "in", args, {"seq"}, 1);
  return Value::of(contains(rt, *p[0], v));
}
Value same_as(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "sameas", args, {"other"}, 1);
  const Value& o = *p[0];
  if (v.type() != o.type()) return Value::of(false);
  return Value::of(v.is_number() || v.is_none() || v.is_string() ? equal(rt, v, o) : v.object() == o.object());
}
template <bool (*kTest)(std::string_view)>
Value text_test(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "test", args, {});
  return Value::of(kTest(to_text(rt, v).view()));
}
template <Builtin (*kFind)(std::string_view)>
Value is_known(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "test", args, {});
  return Value::of(v.is_string() && kFind(v.str()));
}

bool is_boolean(const Value& v) { return v.is(Type::boolean); }
bool is_callable(const Value& v) { return v.is(Type::function) || v.is(Type::macro) || v.is(Type::loop) || v.is_undefined(); }
bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_escaped(const Value& v) { return v.is_string() && v.string().markup; }
bool is_true(const Value& v) { return v.is(Type::boolean) && v.integer(); }
bool is_false(const Value& v) { return v.is(Type::boolean) && !v.integer(); }
bool is_float(const Value& v) { return v.is(Type::number); }
bool is_integer(const Value& v) { return v.is(Type::integer); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_mapping(const Value& v) { return v.is(Type::dict); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_sequence(const Value& v) { return v.is_string() || v.is_sequence() || v.is(Type::dict) || v.is(Type::range) || v.is_undefined(); }

// --- globals ---

Value g_range(Runtime& rt, const Value&, const Args& args) {
  const Params p(rt, "range", args, {"", "", ""}, 1);
  const Int a = p.integer(0, 0), start = p[1] ? a : 0, stop = p.integer(1, a), step = p.integer(2, 1);
  if (step == 0) rt.error("range() arg 3 must not be zero");
  const Int count = step > 0 ? (stop > start ? (stop - start - 1) / step + 1 : 0) : (start > stop ? (start - stop - 1) / -step + 1 : 0);
  if (count > 100'000) rt.error("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  return Value(Type::range, new Range(rt, start, count, step));
}

void fill(Runtime& rt, Dict& d, std::string_view what, const Args& args) {
  if (args.positional.size() > 1) rt.error(what, " expected at most 1 argument, got ", args.positional.size());
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is(Type::dict)) {
      for (auto& [key, value] : from.dict().entries) d.set(key, value);
    } else {
      for (const Value& pair : iterate(rt, from)) {
        const std::vector<Value> kv = iterate(rt, pair);
        if (kv.size() != 2) rt.error("dictionary update sequence element has length ", kv.size(), "; 2 is required");
        d.set(kv[0], kv[1]);
      }
    }
  }
  for (auto& [name, value] : args.named) d.set(rt.text(name, false), value);
}
Value g_dict(Runtime& rt, const Value&, const Args& args) {
  Value d(Type::dict, new Dict(rt));
  fill(rt, d.dict(), "dict", args);
  return d;
}
Value g_namespace(Runtime& rt, const Value&, const Args& args) {
  Value s(Type::space, new Space(rt));
  fill(rt, *s.space().members, "namespace", args);
  return s;
}

Value g_raise(Runtime& rt, const Value&, const Args& args) {
  const Params p(rt, "raise_exception", args, {"message"}, 1);
  fail(Error(Code::template_, to_text(rt, *p[0]).take()));
}

template <size_t N>
Builtin look_up(const std::pair<std::string_view, Builtin> (&table)[N], std::string_view name) {
  for (auto& [n, f] : table)
    if (n == name) return f;
  return nullptr;
}

}  // namespace

Builtin find_test(std::string_view name) {
  static constexpr std::pair<std::string_view, Builtin> tests[] = {
      {"boolean", plain<is_boolean>}, {"callable", plain<is_callable>}, {"defined", plain<is_defined>},
      {"divisibleby", divisible}, {"eq", relation<Relation::eq>}, {"equalto", relation<Relation::eq>},
      {"==", relation<Relation::eq>}, {"escaped", plain<is_escaped>}, {"even", parity<0>}, {"false", plain<is_false>},
      {"filter", is_known<find_filter>}, {"float", plain<is_float>}, {"ge", relation<Relation::ge>},
      {">=", relation<Relation::ge>}, {"gt", relation<Relation::gt>}, {"greaterthan", relation<Relation::gt>},
      {">", relation<Relation::gt>}, {"in", is_in}, {"integer", plain<is_integer>}, {"iterable", plain<iterable>},
      {"le", relation<Relation::le>}, {"<=", relation<Relation::le>}, {"lower", text_test<all_lower>},
      {"lt", relation<Relation::lt>}, {"lessthan", relation<Relation::lt>}, {"<", relation<Relation::lt>},
      {"mapping", plain<is_mapping>}, {"ne", relation<Relation::ne>}, {"!=", relation<Relation::ne>},
      {"none", plain<is_none>}, {"number", plain<is_number>}, {"odd", parity<1>}, {"sameas", same_as},
      {"sequence", plain<is_sequence>}, {"string", plain<is_string>}, {"test", is_known<find_test>},
      {"true", plain<is_true>}, {"undefined", plain<is_undefined>}, {"upper", text_test<all_upper>},
  };
  return look_up(tests, name);
}

Builtin find_global(std::string_view name) {
  static constexpr std::pair<std::string_view, Builtin> globals[] = {
      {"range", g_range}, {"dict", g_dict}, {"namespace", g_namespace}, {"raise_exception", g_raise}, {"strftime_now", format_time}};
  return look_up(globals, name);
}

}  // namespace tealight::jinja
