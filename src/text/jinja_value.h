// Values of the template language: Python's, as far as templates can see them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/text/chat_template.h"
#include "src/text/jinja_text.h"

namespace tealight::jinja {

class Runtime;
using Int = __int128;   // holds all that JSON can say; results beyond it are errors (Python's integers have no end)

enum class Type : uint8_t {
  undefined, none, boolean, integer, number, string, list, tuple, dict, range, view, generator, space, loop, macro, function
};

// What lives on the heap: counted references within one rendering (one thread). The runtime knows every object, so that
// cycles (a namespace or a scope that holds itself) end with the rendering.
struct Object {
  explicit Object(Runtime& r);
  virtual ~Object();
  virtual void clear() {}      // drops what it refers to
  void charge(size_t bytes);   // tells the runtime how much memory it holds by now
  Runtime& rt;
  uint32_t refs = 0;
  size_t charged = 0;
  Object *prev = nullptr, *next = nullptr;
};
void release(Object* o);

template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(T* p) : p_(p) { if (p_) p_->refs++; }
  Ref(const Ref& o) : Ref(o.p_) {}
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Ref& operator=(Ref o) noexcept { std::swap(p_, o.p_); return *this; }
  ~Ref() { if (p_) release(p_); }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_; }

 private:
  T* p_ = nullptr;
};

struct String;
struct List;
struct Dict;
struct Range;
struct View;
struct Generator;
struct Space;
struct Loop;
struct Function;

class Value {
 public:
  Value() : o_(nullptr) {}
  Value(Type t, Object* o, bool user = false) : type_(t), user_(user) { o_ = o; if (o) o->refs++; }
  static Value none(bool user = false) { Value v; v.type_ = Type::none; v.user_ = user; return v; }
  static Value of(bool b, bool user = false) { Value v; v.type_ = Type::boolean; v.user_ = user; v.i_ = b; return v; }
  static Value of(Int i, bool user = false) { Value v; v.type_ = Type::integer; v.user_ = user; v.i_ = i; return v; }
  static Value of(int i, bool user = false) { return of(Int(i), user); }
  static Value of(size_t i, bool user = false) { return of(Int(i), user); }
  static Value of(double d, bool user = false) { Value v; v.type_ = Type::number; v.user_ = user; v.d_ = d; return v; }
  Value(const Value& o) : type_(o.type_), user_(o.user_) { copy(o); if (heap() && o_) o_->refs++; }
  Value(Value&& o) noexcept : type_(o.type_), user_(o.user_) { copy(o); if (heap()) o.o_ = nullptr; }
  Value& operator=(Value o) noexcept;
  ~Value() { if (heap() && o_) release(o_); }

  Type type() const { return type_; }
  bool is(Type t) const { return type_ == t; }
  bool is_undefined() const { return type_ == Type::undefined; }
  bool is_none() const { return type_ == Type::none; }
  bool is_string() const { return type_ == Type::string; }
  bool is_int() const { return type_ == Type::integer || type_ == Type::boolean; }   // as Python: a bool is an int
  bool is_number() const { return is_int() || type_ == Type::number; }
  bool is_sequence() const { return type_ == Type::list || type_ == Type::tuple; }
  bool user() const { return user_; }   // came out of a variable (strings keep a finer record)

  Int integer() const { return i_; }                                            // of is_int()
  double number() const { return type_ == Type::number ? d_ : double(i_); }     // of is_number()
  const Text& text() const;                                                     // of is_string()
  std::string_view str() const { return text().view(); }
  const std::vector<Value>& items() const;                                      // of is_sequence()
  String& string() const { return *as<String>(); }
  List& list() const { return *as<List>(); }
  Dict& dict() const { return *as<Dict>(); }
  Range& range() const { return *as<Range>(); }
  View& view() const { return *as<View>(); }
  Generator& generator() const { return *as<Generator>(); }
  Space& space() const { return *as<Space>(); }
  Loop& loop() const { return *as<Loop>(); }
  Function& function() const { return *as<Function>(); }
  Object* object() const { return heap() ? o_ : nullptr; }
  template <class T>
  T* as() const { return static_cast<T*>(o_); }

 private:
  bool heap() const { return type_ == Type::undefined || type_ >= Type::string; }
  void copy(const Value& o) {
    if (heap()) o_ = o.o_;
    else if (type_ == Type::number) d_ = o.d_;
    else i_ = o.i_;
  }
  Type type_ = Type::undefined;
  bool user_ = false;
  union {
    Int i_;
    double d_;
    Object* o_;
  };
};

struct String : Object {
  String(Runtime& r, Text t, bool safe);
  Text text;
  bool markup;   // marked safe: Python's Markup, which escapes what is added to it
};
struct List : Object {   // list or tuple
  List(Runtime& r, std::vector<Value> v);
  void clear() override { items.clear(); }
  std::vector<Value> items;
  bool group = false;    // what `groupby` makes: a tuple with the names grouper and list
};

// In order of insertion. Keys are compared as Python does: 1, 1.0 and true are one key.
struct Dict : Object {
  explicit Dict(Runtime& r) : Object(r) {}
  void clear() override { entries.clear(); slots_.clear(); }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);   // error for a key that cannot be hashed
  std::vector<std::pair<Value, Value>> entries;

 private:
  template <class Same>
  size_t lookup(uint64_t hash, Same same) const;
  void index(size_t entry, uint64_t hash);
  std::vector<uint32_t> slots_;   // open addressing, entry + 1; empty while the dict is small
  std::vector<uint64_t> hashes_;
};
struct Range : Object {
  Range(Runtime& r, Int a, Int n, Int s) : Object(r), start(a), count(n), step(s) {}
  Int start, count, step;
};
struct View : Object {   // of dict.keys(), .values(), .items()
  enum Kind { keys, values, items };
  View(Runtime& r, Kind k, Value d) : Object(r), kind(k), of(std::move(d)) {}
  void clear() override { of = Value(); }
  Kind kind;
  Value of;
};
struct Generator : Object {   // can be walked once
  Generator(Runtime& r, std::vector<Value> v);
  void clear() override { items.clear(); next = 0; }
  std::vector<Value> items;
  size_t next = 0;
};
struct Space : Object {   // namespace()
  explicit Space(Runtime& r) : Object(r), members(new Dict(r)) {}
  void clear() override { members = Ref<Dict>(); }
  Ref<Dict> members;
};

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
  bool empty() const { return positional.empty() && named.empty(); }
};
// A filter, test, method or global function; `self` is what stands before it.
using Builtin = Value (*)(Runtime&, const Value& self, const Args&);
struct Function : Object {
  Function(Runtime& r, std::string_view n, Builtin f, Value s) : Object(r), name(n), call(f), self(std::move(s)) {}
  void clear() override { self = Value(); }
  std::string_view name;   // static
  Builtin call;
  Value self;
};

// The state of one `for`. Items are pulled only as they are needed, as in Python (a filter may depend on the body).
struct Loop : Object {
  explicit Loop(Runtime& r) : Object(r) {}
  void clear() override;
  virtual bool pull(Value& item) = 0;   // the next item that passes the filter
  bool advance();                       // makes the next item current
  bool peek();                          // is there a next item? (in ahead[0])
  Value attribute(std::string_view name);
  Int index0 = -1;
  int depth0 = 0;
  Value previous, current, last_changed;
  bool has_changed = false;
  std::vector<Value> ahead;
  size_t next_ahead = 0;
};

// One rendering: its limits, its heap, and where it is.
class Runtime {
 public:
  explicit Runtime(const ChatTemplate::Limits& limits);
  ~Runtime();
  Runtime(const Runtime&) = delete;

  template <class... A>
  [[noreturn]] void error(const A&... a) const { fail(Code::template_, "line ", line, ": ", a...); }
  void step(uint64_t n = 1) {
    if ((steps_ += n) > limits.max_steps) error("the template took more than ", limits.max_steps, " steps");
  }
  void bound(uint64_t bytes) const {   // before a text or list of that many bytes is made
    if (bytes > limits.max_output_bytes) error("a value of more than ", limits.max_output_bytes, " bytes");
  }
  void check_depth(int depth) const {
    if (depth > limits.max_depth) error("values nested more than ", limits.max_depth, " deep");
  }

  Value text(Text t, bool markup = false);
  Value text(std::string_view s, bool user) { return text(Text(s, user)); }
  Value list(std::vector<Value> v, Type t = Type::list);
  Value pair(Value a, Value b);
  Value generator(std::vector<Value> v);
  Value undefined(std::string_view message);
  Value from_json(Json j, bool user);

  const ChatTemplate::Limits limits;
  std::string_view now;   // "YYYY-MM-DD hh:mm:ss" or empty
  uint32_t line = 0;

 private:
  friend struct Object;
  friend void release(Object*);
  void account(size_t more, size_t less);
  uint64_t steps_ = 0;
  size_t live_bytes_ = 0, max_live_bytes_;
  Object* objects_ = nullptr;
  std::vector<Object*> dying_;   // so that a long chain of objects is freed in a loop
  bool freeing_ = false;
};

inline const Text& Value::text() const { return string().text; }
inline const std::vector<Value>& Value::items() const { return list().items; }

// Operations (jinja_ops.cpp, jinja_format.cpp). All errors are Runtime::error.
std::string_view type_name(const Value& v);                               // Python's name of the type
bool truth(const Value& v);
bool equal(Runtime& rt, const Value& a, const Value& b, int depth = 0);
int compare(Runtime& rt, const Value& a, const Value& b, int depth = 0);  // -1, 0, 1 for values that have an order; 2: a NaN
bool contains(Runtime& rt, const Value& container, const Value& item);
uint64_t hash_value(Runtime& rt, const Value& v);
size_t length(Runtime& rt, const Value& v);
bool iterable(const Value& v);
std::vector<Value> iterate(Runtime& rt, const Value& v);                  // uses up a generator
enum class Op : uint8_t { add, sub, mul, div, floordiv, mod, pow };
[[noreturn]] void undefined_error(Runtime& rt, const Value& v);           // an undefined value was used as another
Value arithmetic(Runtime& rt, Op op, const Value& a, const Value& b);
Value negate(Runtime& rt, const Value& v);
std::string integer_text(Int i);
std::string number_text(double d);                                        // Python's repr of a float
bool parse_number(std::string_view s, double& out);                       // as Python's float(); white space is stripped
void append_str(Runtime& rt, Text& out, const Value& v);                  // str(v)
void append_repr(Runtime& rt, Text& out, const Value& v, int depth = 0);  // repr(v)
Text to_text(Runtime& rt, const Value& v);
Text escaped(Runtime& rt, const Value& v);                                // str(v), HTML-escaped unless marked safe
Value percent_format(Runtime& rt, const Value& format, const Value& arguments);   // "..." % arguments
Value str_format(Runtime& rt, const Value& self, const Args& args);               // "...".format(...)
Value format_time(Runtime& rt, const Value& self, const Args& args);              // strftime_now
Value to_json(Runtime& rt, const Value& v, const Args& args);                     // the filter tojson

// Attributes and items (jinja_methods.cpp); undefined when there is none.
Value get_attribute(Runtime& rt, const Value& v, std::string_view name);
Value own_attribute(Runtime& rt, const Value& v, std::string_view name, bool& found);   // without a dict's items
Value get_item(Runtime& rt, const Value& v, const Value& key);
Value get_slice(Runtime& rt, const Value& v, const Value& start, const Value& stop, const Value& step);

// Tables (jinja_filters.cpp, jinja_tests.cpp): null when there is no such name.
Builtin find_filter(std::string_view name);
Builtin find_test(std::string_view name);
Builtin find_global(std::string_view name);

// Puts arguments into named slots as a Python call does. A slot that got none is null.
class Params {
 public:
  Params(Runtime& rt, std::string_view what, const Args& args, std::initializer_list<std::string_view> names, size_t required = 0);
  const Value* operator[](size_t i) const { return slots_[i]; }
  Value get(size_t i, Value otherwise) const { return slots_[i] ? *slots_[i] : otherwise; }
  bool flag(size_t i, bool otherwise = false) const { return slots_[i] ? truth(*slots_[i]) : otherwise; }
  Int integer(size_t i, Int otherwise) const;              // error when it is no integer
  const Text* text(size_t i) const;                        // null when absent or none; error when it is no string

 private:
  Runtime& rt_;
  std::string_view what_;
  const Value* slots_[8] = {};
};

}  // namespace tealight::jinja
