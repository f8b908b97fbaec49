// JSON in and out. Parsing is simdjson's; a document is kept as one flat array of nodes in document order.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tealight {

class JsonDoc;

// A value inside a JsonDoc: two words, copied freely, valid as long as the document lives (moving the document is fine).
// A member or element that is not there is a value of kind `missing`, so look-ups chain: doc["a"]["b"].
class Json {
 public:
  enum class Kind : uint8_t { missing, null, boolean, integer, number, string, array, object };
  struct Node {
    Kind kind = Kind::missing;
    bool is_u64 = false;      // integer above INT64_MAX: `i` holds the bits of a uint64_t
    uint32_t size = 0;        // array: elements; object: members (each a key node and a value node); string: bytes
    uint32_t next = 1;        // distance to the node after this whole value
    union {
      bool b;
      int64_t i = 0;
      double d;
      const char* s;
    };
  };

  Json() = default;
  explicit Json(const Node* n) : n_(n) {}
  Kind kind() const { return n_ ? n_->kind : Kind::missing; }
  explicit operator bool() const { return kind() != Kind::missing; }
  bool is(Kind k) const { return kind() == k; }
  bool is_null() const { return kind() == Kind::null; }
  bool is_number() const { return kind() == Kind::number || kind() == Kind::integer; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_array() const { return kind() == Kind::array; }
  bool is_object() const { return kind() == Kind::object; }

  // Each fails with Code::format, "WHAT: expected KIND, got KIND", on a value of another kind. `what` names the value.
  bool boolean(std::string_view what) const;
  int64_t integer(std::string_view what) const;   // also a number with an integral value; not a uint64 above INT64_MAX
  uint64_t unsigned_integer(std::string_view what) const;
  double number(std::string_view what) const;     // integers too
  std::string_view string(std::string_view what) const;

  size_t size() const { return is_array() || is_object() ? n_->size : 0; }
  Json operator[](std::string_view key) const;    // first member of that name; linear
  Json operator[](size_t index) const;            // linear; iterate instead where speed matters

  // for (Json e : value.elements()): none for anything but an array.
  // for (auto [key, v] : value.members()): none for anything but an object.
  struct Member;
  template <bool kMembers>
  struct Range {
    struct It {
      const Node* p;
      uint32_t left;
      bool operator!=(const It& o) const { return left != o.left; }
      using Item = std::conditional_t<kMembers, Member, Json>;
      Item operator*() const {
        if constexpr (kMembers) return Item{{p->s, p->size}, Json(p + 1)};   // (key, value)
        else return Item(p);
      }
      It& operator++() {
        p += kMembers ? 1 + p[1].next : p->next;
        left--;
        return *this;
      }
    };
    const Node* first;
    uint32_t n;
    It begin() const { return {first, n}; }
    It end() const { return {nullptr, 0}; }
  };
  Range<false> elements() const { return is_array() ? Range<false>{n_ + 1, n_->size} : Range<false>{nullptr, 0}; }
  Range<true> members() const { return is_object() ? Range<true>{n_ + 1, n_->size} : Range<true>{nullptr, 0}; }

  const Node* node() const { return n_; }

 private:
  const Node* n_ = nullptr;
};

struct Json::Member {
  std::string_view key;
  Json value;
};

std::string_view kind_name(Json::Kind k);

class JsonDoc {
 public:
  // Parses one document. `what` names the source in errors (Code::format: "WHAT: not valid JSON: reason").
  // Depth is limited to 1000; memory is bounded by a small multiple of the text. `lenient` also takes the literals
  // NaN, Infinity and -Infinity that Python writes.
  static JsonDoc parse(std::string_view text, std::string_view what, bool lenient = false);
  JsonDoc() = default;
  Json root() const { return nodes_.empty() ? Json() : Json(nodes_.data()); }
  Json operator[](std::string_view key) const { return root()[key]; }

 private:
  std::vector<Json::Node> nodes_;
  std::unique_ptr<char[]> strings_;
};

// Appends `s` as a JSON string with quotes; bytes that are not UTF-8 become U+FFFD.
void json_quote(std::string& out, std::string_view s);

// Writes JSON into a string; commas are put where they belong. Numbers are shortest round-trip; NaN and infinity become null.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view k);
  JsonWriter& value(std::string_view v);
  JsonWriter& value(const char* v) { return value(std::string_view(v)); }
  JsonWriter& value(bool v) { return raw(v ? "true" : "false"); }
  JsonWriter& value(int64_t v) { return raw(std::to_string(v)); }
  JsonWriter& value(uint64_t v) { return raw(std::to_string(v)); }
  JsonWriter& value(int v) { return value(int64_t(v)); }
  JsonWriter& value(unsigned v) { return value(uint64_t(v)); }
  JsonWriter& value(double v);
  JsonWriter& null() { return raw("null"); }
  JsonWriter& value(Json v);               // a copy of a parsed value
  JsonWriter& raw(std::string_view text);  // text that is JSON already
  template <class T>
  JsonWriter& field(std::string_view k, const T& v) { return key(k).value(v); }

 private:
  JsonWriter& open(char c);
  JsonWriter& close(char c);
  void comma();
  std::string& out_;
  bool first_ = true, after_key_ = false;
};

}  // namespace tealight
