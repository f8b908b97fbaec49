// Attributes, items and slices, and the methods of dict, list and tuple.
#include <algorithm>

#include "src/text/jinja_strings.h"

namespace tealight::jinja {
namespace {

// How Jinja calls an object in its messages.
std::string object_name(const Value& v) {
  if (v.is_none()) return "None";
  return cat(type_name(v), " object");
}

Value missing(Runtime& rt, const Value& v, std::string_view name) {
  return rt.undefined(cat("'", object_name(v), "' has no attribute '", name, "'"));
}

Value dict_get(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "get", args, {"", ""}, 1);
  const Value* v = self.dict().find(*p[0]);
  return v ? *v : p.get(1, Value::none());
}
template <View::Kind kKind>
Value dict_view(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "items", args, {});
  return Value(Type::view, new View(rt, kKind, self), self.user());
}
Value copy(Runtime& rt, const Value& self, const Args& args) {   // nothing can change either
  const Params p(rt, "copy", args, {});
  return self;
}

Value list_count(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "count", args, {""}, 1);
  return Value::of(size_t(std::count_if(self.items().begin(), self.items().end(), [&](auto& v) { return equal(rt, v, *p[0]); })));
}
Value list_index(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "index", args, {"", "", ""}, 1);
  const Int n = Int(self.items().size());
  const auto bound = [&](Int i) { return std::clamp<Int>(i < 0 ? i + n : i, 0, n); };
  for (Int i = bound(p.integer(1, 0)), end = bound(p.integer(2, n)); i < end; i++)
    if (equal(rt, self.items()[size_t(i)], *p[0])) return Value::of(i);
  rt.error("value is not in ", type_name(self));
}

}  // namespace

// What the type itself offers under a name. Methods that would change the object are refused (the environment that
// transformers renders in is an immutable sandbox).
Value own_attribute(Runtime& rt, const Value& v, std::string_view name, bool& found) {
  static constexpr std::pair<std::string_view, Builtin> dict_methods[] = {
      {"get", dict_get}, {"items", dict_view<View::items>}, {"keys", dict_view<View::keys>}, {"values", dict_view<View::values>}, {"copy", copy}};
  static constexpr std::pair<std::string_view, Builtin> list_methods[] = {{"count", list_count}, {"index", list_index}, {"copy", copy}};
  static constexpr std::string_view dict_unsafe[] = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::string_view list_unsafe[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  found = true;
  const auto method = [&](Builtin f) { return Value(Type::function, new Function(rt, "method", f, v)); };
  const auto unsafe = [&](auto& names) { return std::find(std::begin(names), std::end(names), name) != std::end(names); };
  const auto refused = [&] { return rt.undefined(cat("access to attribute '", name, "' of '", type_name(v), "' object is unsafe.")); };
  switch (v.type()) {
    case Type::undefined: undefined_error(rt, v);
    case Type::string:
      if (Builtin f = find_string_method(name)) return method(f);
      break;
    case Type::dict:
      for (auto& [n, f] : dict_methods)
        if (n == name) return method(f);
      if (unsafe(dict_unsafe)) return refused();
      break;
    case Type::list:
      if (unsafe(list_unsafe)) return refused();
      [[fallthrough]];
    case Type::tuple:
      for (auto& [n, f] : list_methods)
        if (n == name && !(v.is(Type::tuple) && f == copy)) return method(f);
      if (v.list().group && (name == "grouper" || name == "list")) return v.items()[name == "list"];
      break;
    case Type::space:
      if (const Value* m = v.space().members->find(name)) return *m;
      break;
    case Type::loop: {
      Value a = v.loop().attribute(name);
      if (!a.is_undefined()) return a;
      if (name == "previtem" || name == "nextitem") return rt.undefined(name == "previtem" ? "there is no previous item" : "there is no next item");
      break;
    }
    default: break;
  }
  found = false;
  return Value();
}

namespace {

// v[key] alone; false when there is no such item.
bool subscript(Runtime& rt, const Value& v, const Value& key, Value& out) {
  const auto index = [&](size_t size) {
    const Int i = key.integer() < 0 ? key.integer() + Int(size) : key.integer();
    return i >= 0 && i < Int(size) ? size_t(i) : SIZE_MAX;
  };
  switch (v.type()) {
    case Type::undefined: undefined_error(rt, v);
    case Type::dict: {
      if (key.is(Type::list) || key.is(Type::dict) || key.is(Type::view)) return false;
      const Value* found = v.dict().find(key);
      if (found) out = *found;
      return found;
    }
    case Type::list:
    case Type::tuple: {
      const size_t i = key.is_int() ? index(v.items().size()) : SIZE_MAX;
      if (i != SIZE_MAX) out = v.items()[i];
      return i != SIZE_MAX;
    }
    case Type::range: {
      const size_t i = key.is_int() ? index(size_t(v.range().count)) : SIZE_MAX;
      if (i != SIZE_MAX) out = Value::of(v.range().start + Int(i) * v.range().step);
      return i != SIZE_MAX;
    }
    case Type::string: {
      const size_t i = key.is_int() ? index(length(rt, v)) : SIZE_MAX;
      if (i == SIZE_MAX) return false;
      const size_t pos = char_offset(v.str(), i);
      out = like(rt, v, v.text().slice(pos, char_bytes(static_cast<unsigned char>(v.str()[pos]))));
      return true;
    }
    default: return false;
  }
}

}  // namespace

Value Loop::attribute(std::string_view name) {
  const auto remaining = [&] {   // items after the current one
    for (Value item; pull(item);) {
      rt.bound(ahead.size() * sizeof(Value));
      ahead.push_back(std::move(item));
    }
    return Int(ahead.size() - next_ahead);
  };
  if (name == "index") return Value::of(index0 + 1);
  if (name == "index0") return Value::of(index0);
  if (name == "first") return Value::of(index0 == 0);
  if (name == "last") return Value::of(!peek());
  if (name == "length") return Value::of(index0 + 1 + remaining());
  if (name == "revindex") return Value::of(remaining() + 1);
  if (name == "revindex0") return Value::of(remaining());
  if (name == "depth") return Value::of(depth0 + 1);
  if (name == "depth0") return Value::of(depth0);
  if (name == "previtem") return previous;
  if (name == "nextitem") return peek() ? ahead[next_ahead] : Value();
  const auto method = [&](Builtin f) { return Value(Type::function, new Function(rt, "loop method", f, Value(Type::loop, this))); };
  if (name == "cycle")
    return method([](Runtime& r, const Value& self, const Args& args) {
      if (args.positional.empty()) r.error("no items for cycling given");
      return args.positional[size_t(self.loop().index0 % Int(args.positional.size()))];
    });
  if (name == "changed")
    return method([](Runtime& r, const Value& self, const Args& args) {
      Value now = r.list(args.positional, Type::tuple);
      Loop& l = self.loop();
      const bool same = l.has_changed && equal(r, l.last_changed, now);
      l.last_changed = std::move(now);
      l.has_changed = true;
      return Value::of(!same);
    });
  return Value();
}

Value get_attribute(Runtime& rt, const Value& v, std::string_view name) {
  bool found = false;
  Value out = own_attribute(rt, v, name, found);
  if (found) return out;
  if (v.is(Type::dict))
    if (const Value* item = v.dict().find(name)) return *item;
  return missing(rt, v, name);
}

Value get_item(Runtime& rt, const Value& v, const Value& key) {
  Value out;
  if (subscript(rt, v, key, out)) return out;
  if (key.is_string()) {
    bool found = false;
    out = own_attribute(rt, v, key.str(), found);
    return found ? out : missing(rt, v, key.str());
  }
  Text name;
  append_repr(rt, name, key);
  return rt.undefined(cat("'", object_name(v), "' has no element ", name.view()));
}

Value get_slice(Runtime& rt, const Value& v, const Value& start, const Value& stop, const Value& step) {
  if (v.is_undefined()) undefined_error(rt, v);
  if (!v.is_string() && !v.is_sequence() && !v.is(Type::range)) rt.error("'", type_name(v), "' object cannot be sliced");
  const auto part = [&](const Value& p, Int otherwise) {
    if (p.is_none()) return otherwise;
    if (!p.is_int()) rt.error("slice indices must be integers or None");
    return p.integer();
  };
  const Int n = Int(length(rt, v)), by = part(step, 1);
  if (by == 0) rt.error("slice step cannot be zero");
  const auto clip = [&](const Value& p, Int otherwise) {
    Int i = part(p, otherwise);
    if (p.is_none()) return i;
    if (i < 0) i += n;
    return by > 0 ? std::clamp<Int>(i, 0, n) : std::clamp<Int>(i, -1, n - 1);
  };
  const Int from = clip(start, by > 0 ? 0 : n - 1), to = clip(stop, by > 0 ? n : -1);
  const Int count = by > 0 ? (to > from ? (to - from - 1) / by + 1 : 0) : (from > to ? (from - to - 1) / -by + 1 : 0);
  rt.step(uint64_t(count));
  if (v.is(Type::range)) {
    const Range& r = v.range();
    return Value(Type::range, new Range(rt, r.start + from * r.step, count, r.step * by));
  }
  if (v.is_sequence()) {
    std::vector<Value> out;
    out.reserve(size_t(count));
    for (Int i = 0; i < count; i++) out.push_back(v.items()[size_t(from + i * by)]);
    return Value(v.type(), rt.list(std::move(out)).as<List>(), v.user());
  }
  const Text& t = v.text();
  if (count == 0) return like(rt, v, Text());
  if (by == 1) {
    const size_t begin = char_offset(t.view(), size_t(from));
    return like(rt, v, t.slice(begin, char_offset(t.view().substr(begin), size_t(count))));
  }
  std::vector<size_t> offsets;
  for (size_t pos = 0; pos < t.size(); pos += char_bytes(static_cast<unsigned char>(t.view()[pos]))) offsets.push_back(pos);
  Text out;
  for (Int i = 0; i < count; i++) {
    const size_t pos = offsets[size_t(from + i * by)];
    out.append(t, pos, char_bytes(static_cast<unsigned char>(t.view()[pos])));
  }
  return like(rt, v, std::move(out));
}

}  // namespace tealight::jinja
