// The filters (jinja.palletsprojects.com/templates, "List of Builtin Filters"), and tojson.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "src/text/jinja_strings.h"

namespace tealight::jinja {
namespace {

// "a.b.0" or a number: the way from an item to what is asked of it.
struct Path {
  Path(Runtime& rt, const Value* attribute) {
    if (!attribute || attribute->is_none()) return;
    if (!attribute->is_string()) {
      parts.push_back(*attribute);
      return;
    }
    const std::string_view s = attribute->str();
    for (size_t pos = 0; pos <= s.size();) {
      const size_t dot = std::min(s.find('.', pos), s.size());
      const std::string_view part = s.substr(pos, dot - pos);
      Int n = 0;
      const bool digits = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == part.npos;
      for (char c : digits ? part : std::string_view()) n = n * 10 + (c - '0');
      parts.push_back(digits ? Value::of(n) : rt.text(part, false));
      pos = dot + 1;
    }
  }
  Value operator()(Runtime& rt, Value v, const Value* otherwise = nullptr) const {
    for (const Value& p : parts) {
      v = get_item(rt, v, p);
      if (v.is_undefined() && otherwise && !otherwise->is_none()) v = *otherwise;
    }
    return v;
  }
  std::vector<Value> parts;
};

Value fold_case(Runtime& rt, const Value& v, bool case_sensitive) {
  return v.is_string() && !case_sensitive ? rt.text(cased(rt, v.text(), Case::lower)) : v;
}

// Stable, as Python's sorted() is, also in reverse.
std::vector<Value> sorted(Runtime& rt, const std::vector<Value>& items, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? compare(rt, keys[b], keys[a]) == -1 : compare(rt, keys[a], keys[b]) == -1;
  });
  std::vector<Value> out;
  out.reserve(items.size());
  for (size_t i : order) out.push_back(items[i]);
  return out;
}

Text soft_text(Runtime& rt, const Value& v) { return to_text(rt, v); }

// --- one value ---

Value f_abs(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "abs", args, {});
  if (!v.is_number()) return negate(rt, v);   // the error
  return v.is_int() ? Value::of(v.integer() < 0 ? -v.integer() : v.integer(), v.user()) : Value::of(std::fabs(v.number()), v.user());
}

Value f_attr(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "attr", args, {"name"}, 1);
  bool found = false;
  const Text name = to_text(rt, *p[0]);
  Value out = own_attribute(rt, v, name.view(), found);
  return found ? out : rt.undefined(cat("'", type_name(v), " object' has no attribute '", name.view(), "'"));
}

Value f_default(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "default", args, {"default_value", "boolean"});
  return v.is_undefined() || (p.flag(1) && !truth(v)) ? p.get(0, rt.text("", false)) : v;
}

// int(text, base) of Python.
bool parse_integer(std::string_view s, Int base, Int& out) {
  s.remove_prefix(leading_space(s));
  s.remove_suffix(trailing_space(s));
  const bool negative = s.starts_with('-');
  if (negative || s.starts_with('+')) s.remove_prefix(1);
  if (s.size() > 2 && s[0] == '0') {
    const char c = char(s[1] | 0x20);
    const Int named = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
    if (named && (base == named || base == 0)) {
      base = named;
      s.remove_prefix(s[2] == '_' ? 3 : 2);
    }
  }
  if (base == 0) base = 10;
  if (s.empty()) return false;
  Int n = 0;
  for (size_t i = 0; i < s.size(); i++) {
    if (s[i] == '_' && i > 0 && i + 1 < s.size() && s[i - 1] != '_') continue;
    const char c = s[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10 : 99;
    if (digit >= base || n > ((Int(1) << 126) - digit) / base) return false;
    n = n * base + digit;
  }
  out = negative ? -n : n;
  return true;
}

bool to_double(const Value& v, double& out) {
  if (v.is_number()) return out = v.number(), true;
  return v.is_string() && parse_number(v.str(), out);
}

Value f_int(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "int", args, {"default", "base"});
  const bool user = v.user() || (v.is_string() && v.text().any_user());
  Int n;
  if (v.is_undefined()) undefined_error(rt, v);
  if (v.is_int()) return Value::of(v.integer(), user);
  if (v.is_string() && parse_integer(v.str(), p.integer(1, 10), n)) return Value::of(n, user);
  double d;
  if (!to_double(v, d) || !std::isfinite(d)) return p.get(0, Value::of(0));
  if (std::fabs(d) > 1e37) rt.error("the integer is too large");
  return Value::of(Int(d), user);
}

Value f_float(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "float", args, {"default"});
  if (v.is_undefined()) undefined_error(rt, v);
  double d;
  return to_double(v, d) ? Value::of(d, v.user() || (v.is_string() && v.text().any_user())) : p.get(0, Value::of(0.0));
}

Value f_round(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "round", args, {"precision", "method"});
  const Int precision = p.integer(0, 0);
  const std::string_view method = p[1] && p[1]->is_string() ? p[1]->str() : "common";
  if (!v.is_number()) rt.error("type ", type_name(v), " cannot be rounded");
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10.0, double(precision)), x = v.number() * scale;
    return Value::of((method == "ceil" ? std::ceil(x) : std::floor(x)) / scale, v.user());
  }
  if (method != "common") rt.error("method must be common, ceil or floor");
  if (v.is_int() && precision >= 0) return Value::of(v.integer(), v.user());
  if (v.is_int()) {   // to a power of ten, halves to even
    Int unit = 1;
    for (Int i = precision; i < 0 && unit < (Int(1) << 100); i++) unit *= 10;
    const Int low = v.integer() - (v.integer() % unit + unit) % unit, rest = v.integer() - low;
    const bool up = rest * 2 > unit || (rest * 2 == unit && low / unit % 2 != 0);
    return Value::of(low + (up ? unit : 0), v.user());
  }
  if (!std::isfinite(v.number()) || precision > 400) return v;
  if (precision < 0) {
    const double unit = std::pow(10.0, double(-precision));
    return Value::of(std::isinf(unit) ? std::copysign(0.0, v.number()) : std::nearbyint(v.number() / unit) * unit, v.user());
  }
  char buf[800];
  snprintf(buf, sizeof buf, "%.*f", int(precision), v.number());
  double d = 0;
  parse_number(buf, d);
  return Value::of(d, v.user());
}

Value f_string(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "string", args, {});
  return v.is_string() ? v : rt.text(to_text(rt, v));
}
Value f_safe(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "safe", args, {});
  return rt.text(to_text(rt, v), true);
}
template <bool kForce>
Value f_escape(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "escape", args, {});
  return rt.text(escaped(rt, kForce ? rt.text(to_text(rt, v)) : v), true);
}

// --- text ---

template <Text (*kChange)(Runtime&, const Text&)>
Value change(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "filter", args, {});
  return like(rt, v, kChange(rt, soft_text(rt, v)));
}
Text upper(Runtime& rt, const Text& t) { return cased(rt, t, Case::upper); }
Text lower(Runtime& rt, const Text& t) { return cased(rt, t, Case::lower); }

// Jinja's own idea of words: what stands between white space, hyphens and opening brackets.
Text title(Runtime& rt, const Text& t) {
  Text out;
  bool first = true;
  rt.step(t.size() / 8);
  for (size_t pos = 0; pos < t.size();) {
    const size_t n = char_bytes(static_cast<unsigned char>(t.view()[pos]));
    const char32_t c = char_at(t.view(), pos);
    const bool separator = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
    std::string buf;
    append_cased(buf, c, first && !separator ? Case::upper : Case::lower);
    out.append(buf, t.user_at(pos));
    first = separator;
    pos += n;
  }
  return out;
}

Value f_trim(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "trim", args, {"chars"});
  return like(rt, v, stripped(soft_text(rt, v), p.text(0), true, true));
}

Value f_replace(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "replace", args, {"old", "new", "count"}, 2);
  const Int count = p[2] && p[2]->is_none() ? -1 : p.integer(2, -1);
  return rt.text(replaced(rt, to_text(rt, v), to_text(rt, *p[0]), to_text(rt, *p[1]), count));
}

Value f_indent(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "indent", args, {"width", "first", "blank"});
  Text indention(" ", false);
  if (p[0] && p[0]->is_string()) indention = p[0]->text();
  else indention = padded(rt, Text(), p.integer(0, 4), indention, '<');
  if (!v.is_string()) arithmetic(rt, Op::add, v, rt.text("\n", false));   // the error
  Text t = v.text();
  t.append("\n", false);
  Text out;
  if (p.flag(1)) out.append(indention);
  bool begun = false;
  for (const Text& line : lines_of(t, false)) {
    if (begun) out.append("\n", false);
    if (begun && (p.flag(2) || !line.empty())) out.append(indention);
    out.append(line);
    begun = true;
    rt.bound(out.size());
    rt.step();
  }
  return like(rt, v, std::move(out));
}

Value f_center(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "center", args, {"width"});
  return like(rt, v, padded(rt, soft_text(rt, v), p.integer(0, 80), Text(" ", false), 'c'));
}

Value f_truncate(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "truncate", args, {"length", "killwords", "end", "leeway"});
  const Int size = p.integer(0, 255), leeway = p[3] && p[3]->is_none() ? 5 : p.integer(3, 5);
  Text end("...", false);
  if (const Text* t = p.text(2)) end = *t;
  const Int keep = size - Int(count_chars(end.view()));
  if (keep < 0 || leeway < 0) rt.error("truncate(): the length is less than that of its end");
  if (Int(length(rt, v)) <= size + leeway) return v;
  if (!v.is_string()) rt.error("truncate(): expected a string, got ", type_name(v));
  Text t = v.text().slice(0, char_offset(v.str(), size_t(keep)));
  if (!p.flag(1))
    if (const size_t space = t.view().rfind(' '); space != std::string_view::npos) t = t.slice(0, space);
  t.append(end);
  return like(rt, v, std::move(t));
}

Value f_format(Runtime& rt, const Value& v, const Args& args) {
  if (!args.positional.empty() && !args.named.empty()) rt.error("can't handle positional and keyword arguments at the same time");
  Value values = rt.list(args.positional, Type::tuple);
  if (!args.named.empty()) {
    values = Value(Type::dict, new Dict(rt));
    for (auto& [name, value] : args.named) values.dict().set(rt.text(name, false), value);
  }
  return percent_format(rt, f_string(rt, v, {}), values);
}

Value f_wordcount(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "wordcount", args, {});
  const Text t = soft_text(rt, v);
  size_t n = 0;
  bool in_word = false;
  rt.step(t.size() / 16);
  for (size_t pos = 0; pos < t.size(); pos += char_bytes(static_cast<unsigned char>(t.view()[pos]))) {
    const bool word = is_word(char_at(t.view(), pos));
    n += word && !in_word;
    in_word = word;
  }
  return Value::of(n);
}

Text percent_encoded(const Text& t, bool for_query) {
  Text out;
  t.each_part([&](std::string_view part, bool user) {
    std::string buf;
    for (char c : part) {
      if ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || std::string_view("-._~").find(c) != std::string_view::npos || (c == '/' && !for_query)) buf += c;
      else if (c == ' ' && for_query) buf += '+';
      else ((buf += '%') += "0123456789ABCDEF"[static_cast<unsigned char>(c) >> 4]) += "0123456789ABCDEF"[c & 15];
    }
    out.append(buf, user);
  });
  return out;
}

Value f_urlencode(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "urlencode", args, {});
  if (v.is_string() || !iterable(v)) return rt.text(percent_encoded(to_text(rt, v), false));
  Text out;
  const std::vector<Value> pairs = iterate(rt, v.is(Type::dict) ? Value(Type::view, new View(rt, View::items, v)) : v);
  for (const Value& pair : pairs) {
    const std::vector<Value> kv = iterate(rt, pair);
    if (kv.size() != 2) rt.error("urlencode(): expected pairs");
    if (!out.empty()) out.append("&", false);
    out.append(percent_encoded(to_text(rt, kv[0]), true));
    out.append("=", false);
    out.append(percent_encoded(to_text(rt, kv[1]), true));
  }
  return rt.text(std::move(out));
}

// --- sequences ---

Value f_length(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "length", args, {});
  return Value::of(length(rt, v));
}
Value f_list(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "list", args, {});
  return rt.list(iterate(rt, v));
}
Value f_first(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "first", args, {});
  if (v.is(Type::generator)) {
    Generator& g = v.generator();
    if (g.next < g.items.size()) return std::move(g.items[g.next++]);
  } else if (const auto items = iterate(rt, v); !items.empty()) {
    return items[0];
  }
  return rt.undefined("No first item, sequence was empty.");
}
Value f_last(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "last", args, {});
  if (v.is(Type::generator)) rt.error("'generator' object is not reversible");
  const auto items = iterate(rt, v);
  return items.empty() ? rt.undefined("No last item, sequence was empty.") : items.back();
}
Value f_reverse(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "reverse", args, {});
  if (v.is_string()) return get_slice(rt, v, Value::none(), Value::none(), Value::of(-1));
  std::vector<Value> items = iterate(rt, v);
  std::reverse(items.begin(), items.end());
  return v.is(Type::generator) ? rt.list(std::move(items)) : rt.generator(std::move(items));
}

Value f_join(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "join", args, {"d", "attribute"});
  std::vector<Value> items = iterate(rt, v);
  if (p[1] && !p[1]->is_none()) {
    const Path path(rt, p[1]);
    for (Value& item : items) item = path(rt, item);
  }
  return joined(rt, p.get(0, rt.text("", false)), items);
}

Value f_sort(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "sort", args, {"reverse", "case_sensitive", "attribute"});
  std::vector<Path> paths;   // "a,b.c": by a, then by b.c
  if (p[2] && p[2]->is_string()) {
    for (const Text& t : [&] {
           std::vector<Text> parts;
           const std::string_view s = p[2]->str();
           for (size_t pos = 0; pos <= s.size();) {
             const size_t comma = std::min(s.find(',', pos), s.size());
             parts.push_back(p[2]->text().slice(pos, comma - pos));
             pos = comma + 1;
           }
           return parts;
         }()) {
      const Value part = rt.text(t);
      paths.emplace_back(rt, &part);
    }
  } else {
    paths.emplace_back(rt, p[2]);
  }
  const std::vector<Value> items = iterate(rt, v);
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const Path& path : paths) key.push_back(fold_case(rt, path(rt, item), p.flag(1)));
    keys.push_back(rt.list(std::move(key)));
  }
  return rt.list(sorted(rt, items, keys, p.flag(0)));
}

Value f_dictsort(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string_view by = p[1] && p[1]->is_string() ? p[1]->str() : "key";
  if (by != "key" && by != "value") rt.error("You can only sort by either \"key\" or \"value\"");
  if (v.is_undefined()) undefined_error(rt, v);
  if (!v.is(Type::dict)) rt.error("'", type_name(v), "' object has no attribute 'items'");
  std::vector<Value> items, keys;
  for (auto& [key, value] : v.dict().entries) {
    items.push_back(rt.pair(key, value));
    keys.push_back(fold_case(rt, by == "key" ? key : value, p.flag(0)));
  }
  return rt.list(sorted(rt, items, keys, p.flag(2)));
}

Value f_items(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "items", args, {});
  if (v.is_undefined()) return rt.generator({});
  if (!v.is(Type::dict)) rt.error("Can only get item pairs from a mapping.");
  return rt.generator(iterate(rt, Value(Type::view, new View(rt, View::items, v))));
}

Value f_unique(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "unique", args, {"case_sensitive", "attribute"});
  const Path path(rt, p[1]);
  Ref<Dict> seen(new Dict(rt));
  std::vector<Value> out;
  for (const Value& item : iterate(rt, v)) {
    const Value key = fold_case(rt, path(rt, item), p.flag(0));
    if (seen->find(key)) continue;
    seen->set(key, Value());
    out.push_back(item);
  }
  return rt.generator(std::move(out));
}

template <int kSign>
Value f_extreme(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, kSign < 0 ? "min" : "max", args, {"case_sensitive", "attribute"});
  const Path path(rt, p[1]);
  Value best, best_key;
  bool any = false;
  for (const Value& item : iterate(rt, v)) {
    Value key = fold_case(rt, path(rt, item), p.flag(0));
    if (any && (kSign < 0 ? compare(rt, key, best_key) : compare(rt, best_key, key)) != -1) continue;
    any = true;
    best = item;
    best_key = std::move(key);
  }
  return any ? best : rt.undefined("No aggregated item, sequence was empty.");
}

Value f_sum(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "sum", args, {"attribute", "start"});
  const Path path(rt, p[0]);
  Value total = p.get(1, Value::of(0));
  if (total.is_string()) rt.error("sum() can't sum strings");
  for (const Value& item : iterate(rt, v)) total = arithmetic(rt, Op::add, total, path(rt, item));
  return total;
}

Value f_batch(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "batch", args, {"linecount", "fill_with"}, 1);
  const Int n = p.integer(0, 1);
  std::vector<Value> out, line;
  for (const Value& item : iterate(rt, v)) {
    if (Int(line.size()) == n) out.push_back(rt.list(std::exchange(line, {})));
    line.push_back(item);
  }
  if (!line.empty()) {
    if (p[1] && !p[1]->is_none() && n > Int(line.size())) {
      if (n > Int(rt.limits.max_output_bytes)) rt.bound(UINT64_MAX);
      rt.bound(uint64_t(n) * sizeof(Value));
      line.resize(size_t(n), *p[1]);
    }
    out.push_back(rt.list(std::move(line)));
  }
  return rt.generator(std::move(out));
}

Value f_slice(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "slice", args, {"slices", "fill_with"}, 1);
  const Int n = p.integer(0, 1);
  if (n == 0) rt.error("division by zero");
  const std::vector<Value> items = iterate(rt, v);
  if (n > Int(rt.limits.max_output_bytes)) rt.bound(UINT64_MAX);
  if (n > 0) rt.step(uint64_t(n));
  const Int each = Int(items.size()) / std::max<Int>(n, 1), extra = Int(items.size()) % std::max<Int>(n, 1);
  std::vector<Value> out;
  auto at = items.begin();
  for (Int i = 0; i < n; i++) {
    std::vector<Value> part(at, at + ptrdiff_t(each + (i < extra)));
    at += ptrdiff_t(part.size());
    if (p[1] && !p[1]->is_none() && i >= extra) part.push_back(*p[1]);
    out.push_back(rt.list(std::move(part)));
  }
  return rt.generator(std::move(out));
}

Value f_groupby(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const Path path(rt, p[0]);
  const std::vector<Value> items = iterate(rt, v);
  std::vector<Value> keys;
  for (const Value& item : items) keys.push_back(fold_case(rt, path(rt, item, p[1]), p.flag(2)));
  const std::vector<Value> order = sorted(rt, items, keys, false);
  std::vector<Value> out;
  for (size_t i = 0; i < order.size();) {
    const Value key = fold_case(rt, path(rt, order[i], p[1]), p.flag(2)), name = path(rt, order[i], p[1]);
    std::vector<Value> group;
    for (; i < order.size() && equal(rt, key, fold_case(rt, path(rt, order[i], p[1]), p.flag(2))); i++) group.push_back(order[i]);
    if (group.empty()) group.push_back(order[i++]);   // a key that differs from itself (NaN)
    out.push_back(rt.pair(name, rt.list(std::move(group))));
    out.back().list().group = true;
  }
  return rt.list(std::move(out));
}

// The arguments from `first` on, for a filter or test that another one is given.
Args rest_of(const Args& args, size_t first) {
  Args rest{{}, args.named};
  if (args.positional.size() > first) rest.positional.assign(args.positional.begin() + ptrdiff_t(first), args.positional.end());
  return rest;
}

Value f_map(Runtime& rt, const Value& v, const Args& args) {
  if (!truth(v)) return rt.generator({});   // also of none: the filters that pick and change items take it for empty
  std::vector<Value> items = iterate(rt, v);
  if (args.positional.empty()) {
    const Params p(rt, "map", args, {"attribute", "default"}, 1);
    const Path path(rt, p[0]);
    for (Value& item : items) item = path(rt, item, p[1]);
    return rt.generator(std::move(items));
  }
  const Value& name = args.positional[0];
  const Builtin f = name.is_string() ? find_filter(name.str()) : nullptr;
  if (!f) rt.error("No filter named ", quoted(to_text(rt, name).view()));
  const Args rest = rest_of(args, 1);
  for (Value& item : items) rt.step(), item = f(rt, item, rest);
  return rt.generator(std::move(items));
}

template <bool kKeep, bool kAttribute>
Value f_select(Runtime& rt, const Value& v, const Args& args) {
  if (!truth(v)) return rt.generator({});
  if (kAttribute && args.positional.empty()) rt.error("Missing parameter for attribute name");
  const Path path(rt, kAttribute ? &args.positional[0] : nullptr);
  const size_t at = kAttribute ? 1 : 0;
  Builtin test = nullptr;
  if (args.positional.size() > at) {
    const Value& name = args.positional[at];
    test = name.is_string() ? find_test(name.str()) : nullptr;
    if (!test) rt.error("No test named ", quoted(to_text(rt, name).view()));
  }
  const Args rest = rest_of(args, at + 1);
  std::vector<Value> out;
  for (const Value& item : iterate(rt, v)) {
    rt.step();
    const Value x = path(rt, item);
    if (truth(test ? test(rt, x, rest) : x) == kKeep) out.push_back(item);
  }
  return rt.generator(std::move(out));
}

}  // namespace

Builtin find_filter(std::string_view name) {
  static constexpr std::pair<std::string_view, Builtin> filters[] = {
      {"abs", f_abs}, {"attr", f_attr}, {"batch", f_batch}, {"capitalize", change<capitalized>}, {"center", f_center},
      {"count", f_length}, {"d", f_default}, {"default", f_default}, {"dictsort", f_dictsort}, {"e", f_escape<false>},
      {"escape", f_escape<false>}, {"first", f_first}, {"float", f_float}, {"forceescape", f_escape<true>},
      {"format", f_format}, {"groupby", f_groupby}, {"indent", f_indent}, {"int", f_int}, {"items", f_items},
      {"join", f_join}, {"last", f_last}, {"length", f_length}, {"list", f_list}, {"lower", change<lower>}, {"map", f_map},
      {"max", f_extreme<1>}, {"min", f_extreme<-1>}, {"reject", f_select<false, false>},
      {"rejectattr", f_select<false, true>}, {"replace", f_replace}, {"reverse", f_reverse}, {"round", f_round},
      {"safe", f_safe}, {"select", f_select<true, false>}, {"selectattr", f_select<true, true>}, {"slice", f_slice},
      {"sort", f_sort}, {"string", f_string}, {"sum", f_sum}, {"title", change<title>}, {"tojson", to_json},
      {"trim", f_trim}, {"truncate", f_truncate}, {"unique", f_unique}, {"upper", change<upper>},
      {"urlencode", f_urlencode}, {"wordcount", f_wordcount},
  };
  for (auto& [n, f] : filters)
    if (n == name) return f;
  return nullptr;
}

}  // namespace tealight::jinja
