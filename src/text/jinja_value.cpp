#include "src/text/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "src/base/hash.h"

namespace tealight::jinja {

Object::Object(Runtime& r) : rt(r), next(r.objects_) {
  if (next) next->prev = this;
  r.objects_ = this;
  charge(64);
}

Object::~Object() {
  (prev ? prev->next : rt.objects_) = next;
  if (next) next->prev = prev;
  rt.live_bytes_ -= charged;
}

void Object::charge(size_t bytes) {
  rt.account(bytes, charged);
  charged = bytes;
}

void release(Object* o) {
  if (--o->refs > 0) return;
  Runtime& rt = o->rt;
  if (rt.freeing_) return rt.dying_.push_back(o);
  rt.freeing_ = true;
  delete o;
  while (!rt.dying_.empty()) {
    o = rt.dying_.back();
    rt.dying_.pop_back();
    delete o;
  }
  rt.freeing_ = false;
}

Value& Value::operator=(Value o) noexcept {
  Value old(std::move(*this));
  type_ = o.type_;
  user_ = o.user_;
  copy(o);
  if (o.heap()) o.o_ = nullptr;
  return *this;
}

String::String(Runtime& r, Text t, bool safe) : Object(r), text(std::move(t)), markup(safe) { charge(96 + text.memory()); }
List::List(Runtime& r, std::vector<Value> v) : Object(r), items(std::move(v)) { charge(96 + items.capacity() * sizeof(Value)); }
Generator::Generator(Runtime& r, std::vector<Value> v) : Object(r), items(std::move(v)) { charge(96 + items.capacity() * sizeof(Value)); }

void Loop::clear() {
  previous = current = last_changed = Value();
  ahead.clear();
}

bool Loop::peek() {
  if (next_ahead < ahead.size()) return true;
  Value item;
  if (!pull(item)) return false;
  ahead.clear();
  next_ahead = 0;
  ahead.push_back(std::move(item));
  return true;
}

bool Loop::advance() {
  if (!peek()) return false;
  previous = std::move(current);
  current = std::move(ahead[next_ahead++]);
  index0++;
  return true;
}

// --- Dict -----------------------------------------------------------------------------------------------------------

constexpr size_t kLinear = 8;   // up to so many entries are searched one by one

template <class Same>
size_t Dict::lookup(uint64_t hash, Same same) const {
  if (slots_.empty()) {
    for (size_t i = 0; i < entries.size(); i++)
      if (hashes_[i] == hash && same(entries[i].first)) return i;
    return SIZE_MAX;
  }
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at]; at = (at + 1) & mask)
    if (const size_t i = slots_[at] - 1; hashes_[i] == hash && same(entries[i].first)) return i;
  return SIZE_MAX;
}

void Dict::index(size_t entry, uint64_t hash) {
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at]) at = (at + 1) & mask;
  slots_[at] = uint32_t(entry + 1);
}

const Value* Dict::find(const Value& key) const {
  const size_t i = lookup(hash_value(rt, key), [&](const Value& k) { return equal(rt, k, key); });
  return i == SIZE_MAX ? nullptr : &entries[i].second;
}

const Value* Dict::find(std::string_view key) const {
  const size_t i = lookup(hash64(key), [&](const Value& k) { return k.is_string() && k.str() == key; });
  return i == SIZE_MAX ? nullptr : &entries[i].second;
}

void Dict::set(const Value& key, Value value) {
  const uint64_t hash = hash_value(rt, key);
  const size_t i = lookup(hash, [&](const Value& k) { return equal(rt, k, key); });
  if (i != SIZE_MAX) {
    entries[i].second = std::move(value);
    return;
  }
  entries.emplace_back(key, std::move(value));
  hashes_.push_back(hash);
  charge(128 + entries.capacity() * sizeof(entries[0]) + hashes_.capacity() * 8 + slots_.capacity() * 4);
  if (entries.size() <= kLinear) return;
  if (entries.size() * 2 <= slots_.size()) return index(entries.size() - 1, hash);
  slots_.assign(std::max<size_t>(32, slots_.size() * 2), 0);
  for (size_t e = 0; e < entries.size(); e++) index(e, hashes_[e]);
}

uint64_t hash_value(Runtime& rt, const Value& v) {
  const auto mix = [](uint64_t h) { return (h ^ (h >> 32)) * 0x9e3779b97f4a7c15ull; };
  switch (v.type()) {
    case Type::string: return hash64(v.str());
    case Type::boolean:
    case Type::integer: return mix(uint64_t(v.integer()));
    case Type::number: {
      const double d = v.number();
      if (d == std::floor(d) && std::fabs(d) < 1e37) return mix(uint64_t(Int(d)));
      return mix(uint64_t(std::hash<double>()(d)));
    }
    case Type::tuple: {
      rt.step(v.items().size());
      uint64_t h = v.items().size();
      for (const Value& e : v.items()) h = mix(h ^ hash_value(rt, e));
      return h;
    }
    case Type::undefined:
    case Type::none: return 0;
    case Type::list:
    case Type::dict:
    case Type::view: rt.error("unhashable type: '", type_name(v), "'");
    default: return mix(uint64_t(uintptr_t(v.object())));
  }
}

// --- Runtime --------------------------------------------------------------------------------------------------------

Runtime::Runtime(const ChatTemplate::Limits& l)
    : limits{l.max_steps, std::min<uint64_t>(l.max_output_bytes, uint64_t(1) << 31), l.max_depth},
      max_live_bytes_(size_t(limits.max_output_bytes) * 4) {}

Runtime::~Runtime() {
  std::vector<Ref<Object>> all;
  for (Object* o = objects_; o; o = o->next) all.emplace_back(o);
  for (auto& o : all) o->clear();
}

void Runtime::account(size_t more, size_t less) {
  if (more > less && live_bytes_ + (more - less) > max_live_bytes_)
    error("the template needs more than ", max_live_bytes_, " bytes of memory");
  live_bytes_ += more - less;
}

Value Runtime::text(Text t, bool markup) {
  bound(t.size());
  step(t.size() / 64);
  return Value(Type::string, new String(*this, std::move(t), markup));
}
Value Runtime::list(std::vector<Value> v, Type t) {
  bound(v.size() * sizeof(Value));
  step(v.size() / 4);
  return Value(t, new List(*this, std::move(v)));
}
Value Runtime::pair(Value a, Value b) {
  std::vector<Value> v;
  v.reserve(2);
  v.push_back(std::move(a));
  v.push_back(std::move(b));
  return list(std::move(v), Type::tuple);
}
Value Runtime::generator(std::vector<Value> v) {
  step(v.size() / 4);
  return Value(Type::generator, new Generator(*this, std::move(v)));
}
Value Runtime::undefined(std::string_view message) { return Value(Type::undefined, new String(*this, Text(message, false), false)); }

Value Runtime::from_json(Json j, bool user) {
  switch (j.kind()) {
    case Json::Kind::boolean: return Value::of(j.boolean(""), user);
    case Json::Kind::integer: return j.node()->is_u64 ? Value::of(Int(uint64_t(j.node()->i)), user) : Value::of(Int(j.node()->i), user);
    case Json::Kind::number: return Value::of(j.node()->d, user);
    case Json::Kind::string: return text(j.string(""), user);
    case Json::Kind::array: {
      std::vector<Value> items;
      items.reserve(j.size());
      for (Json e : j.elements()) items.push_back(from_json(e, user));
      return Value(Type::list, new List(*this, std::move(items)), user);
    }
    case Json::Kind::object: {
      Value d(Type::dict, new Dict(*this), user);
      for (auto [key, value] : j.members()) d.dict().set(text(key, user), from_json(value, user));
      return d;
    }
    default: return Value::none(user);
  }
}

// --- Params ---------------------------------------------------------------------------------------------------------

Params::Params(Runtime& rt, std::string_view what, const Args& args, std::initializer_list<std::string_view> names, size_t required)
    : rt_(rt), what_(what) {
  TEALIGHT_CHECK(names.size() <= std::size(slots_));
  if (args.positional.size() > names.size())
    rt.error(what, "() takes at most ", names.size(), " arguments (", args.positional.size(), " given)");
  for (size_t i = 0; i < args.positional.size(); i++) slots_[i] = &args.positional[i];
  for (auto& [name, value] : args.named) {
    const size_t i = size_t(std::find(names.begin(), names.end(), name) - names.begin());
    if (i == names.size()) rt.error(what, "() got an unexpected keyword argument ", quoted(name));
    if (slots_[i]) rt.error(what, "() got multiple values for argument ", quoted(name));
    slots_[i] = &value;
  }
  for (size_t i = 0; i < required; i++)
    if (!slots_[i]) rt.error(what, "() missing required argument ", quoted(names.begin()[i]));
}

Int Params::integer(size_t i, Int otherwise) const {
  if (!slots_[i]) return otherwise;
  if (!slots_[i]->is_int()) rt_.error(what_, "(): expected an integer, got ", type_name(*slots_[i]));
  return slots_[i]->integer();
}

const Text* Params::text(size_t i) const {
  if (!slots_[i] || slots_[i]->is_none()) return nullptr;
  if (!slots_[i]->is_string()) rt_.error(what_, "(): expected a string, got ", type_name(*slots_[i]));
  return &slots_[i]->text();
}

}  // namespace tealight::jinja
