// Python's meaning of truth, equality, order, membership, length, iteration and arithmetic.
#include <algorithm>
#include <cmath>

#include "src/text/jinja_value.h"

namespace tealight::jinja {

std::string_view type_name(const Value& v) {
  static constexpr std::string_view names[] = {"Undefined", "NoneType", "bool", "int", "float", "str", "list", "tuple", "dict", "range",
                                               "dict view", "generator", "Namespace", "LoopContext", "Macro", "function"};
  return names[size_t(v.type())];
}

void undefined_error(Runtime& rt, const Value& v) {
  if (v.object()) rt.error(v.string().text.view());
  rt.error("an undefined value was used");
}

bool truth(const Value& v) {
  switch (v.type()) {
    case Type::undefined:
    case Type::none: return false;
    case Type::boolean:
    case Type::integer: return v.integer() != 0;
    case Type::number: return v.number() != 0;
    case Type::string: return !v.text().empty();
    case Type::list:
    case Type::tuple: return !v.items().empty();
    case Type::dict: return !v.dict().entries.empty();
    case Type::range: return v.range().count > 0;
    case Type::view: return truth(v.view().of);
    default: return true;
  }
}

namespace {

int order(double a, double b) { return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2; }
int order(Int a, Int b) { return a < b ? -1 : a > b; }

// Exact, also where the integer does not fit a double.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_int() && b.is_int()) return order(a.integer(), b.integer());
  if (!a.is_int() && !b.is_int()) return order(a.number(), b.number());
  if (!a.is_int()) {
    const int c = compare_numbers(b, a);
    return c == 2 ? 2 : -c;
  }
  const double d = b.number();
  if (std::fabs(d) < 1e37) {
    const double whole = std::floor(d);
    const int c = order(a.integer(), Int(whole));
    return c == 0 && d > whole ? -1 : c;
  }
  return std::isnan(d) ? 2 : d > 0 ? -1 : 1;
}

bool equal_items(Runtime& rt, const std::vector<Value>& a, const std::vector<Value>& b, int depth) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++)
    if (!equal(rt, a[i], b[i], depth + 1)) return false;
  return true;
}

bool equal_dicts(Runtime& rt, const Dict& a, const Dict& b, int depth) {
  if (a.entries.size() != b.entries.size()) return false;
  for (auto& [key, value] : a.entries) {
    const Value* other = b.find(key);
    if (!other || !equal(rt, value, *other, depth + 1)) return false;
  }
  return true;
}

}  // namespace

bool equal(Runtime& rt, const Value& a, const Value& b, int depth) {
  rt.check_depth(depth);
  rt.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::undefined:
    case Type::none: return true;
    case Type::string: return a.str() == b.str();
    case Type::list:
    case Type::tuple: return a.object() == b.object() || equal_items(rt, a.items(), b.items(), depth);
    case Type::dict: return a.object() == b.object() || equal_dicts(rt, a.dict(), b.dict(), depth);
    case Type::range: {
      const Range &r = a.range(), &s = b.range();
      return r.count == s.count && (r.count == 0 || (r.start == s.start && (r.count == 1 || r.step == s.step)));
    }
    default: return a.object() == b.object();
  }
}

int compare(Runtime& rt, const Value& a, const Value& b, int depth) {
  rt.check_depth(depth);
  rt.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) return std::clamp(a.str().compare(b.str()), -1, 1);   // UTF-8 sorts by code point
  if (a.is_sequence() && a.type() == b.type()) {
    const auto &x = a.items(), &y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); i++)
      if (!equal(rt, x[i], y[i], depth + 1)) return compare(rt, x[i], y[i], depth + 1);
    return order(Int(x.size()), Int(y.size()));
  }
  if (a.is_undefined()) undefined_error(rt, a);
  if (b.is_undefined()) undefined_error(rt, b);
  rt.error("'<' not supported between instances of '", type_name(a), "' and '", type_name(b), "'");
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.type()) {
    case Type::undefined: return false;
    case Type::string:
      if (!item.is_string()) rt.error("'in <string>' requires a string as left operand, not ", type_name(item));
      rt.step(container.text().size() / 64);
      return container.str().find(item.str()) != std::string_view::npos;
    case Type::dict: return container.dict().find(item);
    case Type::range: {
      const Range& r = container.range();
      if (!item.is_number()) return false;
      if (!item.is_int() && item.number() != std::floor(item.number())) return false;
      const Int offset = (item.is_int() ? item.integer() : Int(item.number())) - r.start;
      return offset % r.step == 0 && offset / r.step >= 0 && offset / r.step < r.count;
    }
    case Type::view:
      if (container.view().kind == View::keys) return contains(rt, container.view().of, item);
      break;
    default: break;
  }
  const std::vector<Value> all = container.is_sequence() ? std::vector<Value>() : iterate(rt, container);
  for (const Value& e : container.is_sequence() ? container.items() : all)
    if (equal(rt, e, item)) return true;
  return false;
}

size_t length(Runtime& rt, const Value& v) {
  switch (v.type()) {
    case Type::undefined: return 0;
    case Type::string: rt.step(v.text().size() / 64); return count_chars(v.str());
    case Type::list:
    case Type::tuple: return v.items().size();
    case Type::dict: return v.dict().entries.size();
    case Type::range: return size_t(v.range().count);
    case Type::view: return length(rt, v.view().of);
    default: rt.error("object of type '", type_name(v), "' has no len()");
  }
}

bool iterable(const Value& v) {
  switch (v.type()) {
    case Type::undefined: case Type::string: case Type::list: case Type::tuple: case Type::dict: case Type::range: case Type::view:
    case Type::generator: case Type::loop: return true;
    default: return false;
  }
}

std::vector<Value> iterate(Runtime& rt, const Value& v) {
  std::vector<Value> out;
  const auto room = [&](size_t n) {
    rt.bound(n * sizeof(Value));
    rt.step(n);
    out.reserve(n);
  };
  switch (v.type()) {
    case Type::undefined: return out;
    case Type::list:
    case Type::tuple: room(v.items().size()); return v.items();
    case Type::string:
      room(count_chars(v.str()));
      for (size_t pos = 0; pos < v.text().size();) {
        const size_t n = char_bytes(static_cast<unsigned char>(v.str()[pos]));
        out.push_back(rt.text(v.text().slice(pos, n)));
        pos += n;
      }
      return out;
    case Type::dict:
      room(v.dict().entries.size());
      for (auto& [key, value] : v.dict().entries) out.push_back(key);
      return out;
    case Type::range:
      room(size_t(v.range().count));
      for (Int i = 0; i < v.range().count; i++) out.push_back(Value::of(v.range().start + i * v.range().step));
      return out;
    case Type::view:
      room(length(rt, v));
      for (auto& [key, value] : v.view().of.dict().entries)
        out.push_back(v.view().kind == View::keys ? key : v.view().kind == View::values ? value : rt.pair(key, value));
      return out;
    case Type::generator: {
      Generator& g = v.generator();
      room(g.items.size() - g.next);
      while (g.next < g.items.size()) out.push_back(std::move(g.items[g.next++]));
      return out;
    }
    default: rt.error("'", type_name(v), "' object is not iterable");
  }
}

// --- Arithmetic -----------------------------------------------------------------------------------------------------

namespace {

[[noreturn]] void too_large(Runtime& rt) { rt.error("the integer is too large"); }
void check_size(Runtime& rt, Int i) {
  if (i > (Int(1) << 126) || i < -(Int(1) << 126)) too_large(rt);
}

Int integer_power(Runtime& rt, Int base, Int exponent) {
  Int result = 1;
  if (base == 0 || base == 1 || base == -1) return exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base;
  for (; exponent > 0; exponent--)   // ends soon: the result at least doubles
    if (__builtin_mul_overflow(result, base, &result)) too_large(rt);
  return result;
}

Value integer_op(Runtime& rt, Op op, Int a, Int b, bool user) {
  Int r = 0;
  if (b == 0 && (op == Op::div || op == Op::floordiv || op == Op::mod)) rt.error("division by zero");
  switch (op) {
    case Op::add: r = a + b; break;   // both are below 2^126
    case Op::sub: r = a - b; break;
    case Op::mul:
      if (__builtin_mul_overflow(a, b, &r)) too_large(rt);
      break;
    case Op::div: return Value::of(double(a) / double(b), user);
    case Op::floordiv: r = a / b - (a % b != 0 && (a % b < 0) != (b < 0)); break;
    case Op::mod: r = a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0); break;
    case Op::pow:
      if (b < 0) {
        if (a == 0) rt.error("0.0 cannot be raised to a negative power");
        return Value::of(std::pow(double(a), double(b)), user);
      }
      r = integer_power(rt, a, b);
      break;
  }
  check_size(rt, r);
  return Value::of(r, user);
}

Value float_op(Runtime& rt, Op op, double a, double b, bool user) {
  if (b == 0 && (op == Op::div || op == Op::floordiv || op == Op::mod)) rt.error("float division by zero");
  switch (op) {
    case Op::add: return Value::of(a + b, user);
    case Op::sub: return Value::of(a - b, user);
    case Op::mul: return Value::of(a * b, user);
    case Op::div: return Value::of(a / b, user);
    case Op::pow: {
      if (a == 0 && b < 0) rt.error("0.0 cannot be raised to a negative power");
      const double r = std::pow(a, b);
      if (std::isnan(r) && !std::isnan(a) && !std::isnan(b)) rt.error("complex numbers are not supported");
      if (std::isinf(r) && std::isfinite(a) && std::isfinite(b)) rt.error("the result is too large");
      return Value::of(r, user);
    }
    default: break;
  }
  // Python's divmod: the remainder has the sign of the divisor.
  double mod = std::fmod(a, b), div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) mod += b, div -= 1;
  if (mod == 0) mod = std::copysign(0.0, b);
  if (op == Op::mod) return Value::of(mod, user);
  double whole = std::floor(div);
  if (div - whole > 0.5) whole += 1;
  return Value::of(div == 0 ? std::copysign(0.0, a / b) : whole, user);
}

Value repeat(Runtime& rt, const Value& v, Int times) {
  const size_t unit = v.is_string() ? v.text().size() : v.items().size() * sizeof(Value);
  if (times < 0 || unit == 0) times = 0;
  if (times > Int(rt.limits.max_output_bytes)) rt.bound(UINT64_MAX);
  rt.bound(unit * uint64_t(times));
  rt.step(uint64_t(times) + unit * uint64_t(times) / 64);
  if (v.is_string()) {
    Text out;
    for (Int i = 0; i < times; i++) out.append(v.text());
    return rt.text(std::move(out), v.string().markup);
  }
  std::vector<Value> out;
  out.reserve(v.items().size() * size_t(times));
  for (Int i = 0; i < times; i++) out.insert(out.end(), v.items().begin(), v.items().end());
  return rt.list(std::move(out), v.type());
}

Value add_strings(Runtime& rt, const Value& a, const Value& b) {
  const bool markup = a.string().markup || b.string().markup;
  rt.bound(a.text().size() + b.text().size());
  Text out = markup ? escaped(rt, a) : a.text();
  out.append(markup ? escaped(rt, b) : b.text());
  return rt.text(std::move(out), markup);
}

}  // namespace

Value arithmetic(Runtime& rt, Op op, const Value& a, const Value& b) {
  const bool user = a.user() || b.user();
  if (a.is_int() && b.is_int()) return integer_op(rt, op, a.integer(), b.integer(), user);
  if (a.is_number() && b.is_number()) return float_op(rt, op, a.number(), b.number(), user);
  const auto repeatable = [](const Value& v) { return v.is_string() || v.is_sequence(); };
  if (op == Op::mod && a.is_string()) return percent_format(rt, a, b);
  if (a.is_undefined()) undefined_error(rt, a);
  if (b.is_undefined()) undefined_error(rt, b);
  if (op == Op::add && a.is_string() && b.is_string()) return add_strings(rt, a, b);
  if (op == Op::add && a.is_sequence() && a.type() == b.type()) {
    std::vector<Value> out;
    rt.bound((a.items().size() + b.items().size()) * sizeof(Value));
    out.reserve(a.items().size() + b.items().size());
    out.insert(out.end(), a.items().begin(), a.items().end());
    out.insert(out.end(), b.items().begin(), b.items().end());
    return rt.list(std::move(out), a.type());
  }
  if (op == Op::mul && repeatable(a) && b.is_int()) return repeat(rt, a, b.integer());
  if (op == Op::mul && a.is_int() && repeatable(b)) return repeat(rt, b, a.integer());
  static constexpr std::string_view signs[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  rt.error("unsupported operand types for ", signs[size_t(op)], ": '", type_name(a), "' and '", type_name(b), "'");
}

Value negate(Runtime& rt, const Value& v) {
  if (v.is_int()) return Value::of(-v.integer(), v.user());
  if (v.is_number()) return Value::of(-v.number(), v.user());
  if (v.is_undefined()) undefined_error(rt, v);
  rt.error("bad operand type for unary -: '", type_name(v), "'");
}

}  // namespace tealight::jinja
