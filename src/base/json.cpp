#include "src/base/json.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include <simdjson.h>

#include "src/base/error.h"

namespace tealight {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kMaxDepth = 1000;

// Copies simdjson's tree into flat nodes. Strings are counted first, so that one block holds them and views never move.
struct Flattener {
  std::vector<Json::Node>& nodes;
  char* strings;
  size_t used = 0;

  void put_string(std::string_view s) {
    Json::Node n;
    n.kind = Json::Kind::string;
    n.size = uint32_t(s.size());
    if (!s.empty()) std::memcpy(strings + used, s.data(), s.size());
    n.s = strings + used;
    used += s.size();
    nodes.push_back(n);
  }
  void put(const dom::element& e) {
    const size_t at = nodes.size();
    Json::Node n;
    switch (e.type()) {
      case dom::element_type::NULL_VALUE: n.kind = Json::Kind::null; break;
      case dom::element_type::BOOL: n.kind = Json::Kind::boolean; n.b = e.get_bool().value_unsafe(); break;
      case dom::element_type::INT64: n.kind = Json::Kind::integer; n.i = e.get_int64().value_unsafe(); break;
      case dom::element_type::UINT64:
        n.kind = Json::Kind::integer;
        n.is_u64 = true;
        n.i = int64_t(e.get_uint64().value_unsafe());
        break;
      case dom::element_type::DOUBLE: n.kind = Json::Kind::number; n.d = e.get_double().value_unsafe(); break;
      case dom::element_type::STRING: return put_string(e.get_string().value_unsafe());
      case dom::element_type::ARRAY: {
        n.kind = Json::Kind::array;
        nodes.push_back(n);
        uint32_t count = 0;
        for (dom::element c : dom::array(e.get_array().value_unsafe())) put(c), count++;
        nodes[at].size = count;
        nodes[at].next = uint32_t(nodes.size() - at);
        return;
      }
      case dom::element_type::OBJECT: {
        n.kind = Json::Kind::object;
        nodes.push_back(n);
        uint32_t count = 0;
        for (dom::key_value_pair kv : dom::object(e.get_object().value_unsafe())) put_string(kv.key), put(kv.value), count++;
        nodes[at].size = count;
        nodes[at].next = uint32_t(nodes.size() - at);
        return;
      }
      default: break;  // bigint is off
    }
    nodes.push_back(n);
  }
};

size_t string_bytes(const dom::element& e) {
  size_t n = 0;
  if (e.is_string()) return e.get_string().value_unsafe().size();
  if (e.is_array())
    for (dom::element c : dom::array(e.get_array().value_unsafe())) n += string_bytes(c);
  if (e.is_object())
    for (dom::key_value_pair kv : dom::object(e.get_object().value_unsafe())) n += kv.key.size() + string_bytes(kv.value);
  return n;
}

// Replaces the literals NaN, Infinity and -Infinity outside of strings by numbers that parse to themselves or overflow
// to null: simdjson has no such values, so they become null, NaN and infinity being unusable in a config anyway.
std::string without_python_literals(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      size_t j = i + 1;
      while (j < text.size() && text[j] != '"') j += text[j] == '\\' ? 2 : 1;
      j = std::min(j + 1, text.size());
      out += text.substr(i, j - i);
      i = j;
      continue;
    }
    bool replaced = false;
    for (std::string_view word : {std::string_view("-Infinity"), std::string_view("Infinity"), std::string_view("NaN")})
      if (text.substr(i, word.size()) == word) {
        out += word == "NaN" ? "null" : word[0] == '-' ? "-1.7976931348623157e308" : "1.7976931348623157e308";
        i += word.size();
        replaced = true;
        break;
      }
    if (!replaced) out += text[i++];
  }
  return out;
}

}  // namespace

JsonDoc JsonDoc::parse(std::string_view text, std::string_view what, bool lenient) {
  if (text.size() >= (uint64_t(1) << 32) - 64) fail(Code::format, what, ": JSON of ", text.size(), " bytes is larger than 4 GiB");
  dom::parser parser;
  std::string relaxed;
  dom::element e;
  if (parser.allocate(std::max<size_t>(text.size(), 64), kMaxDepth) != simdjson::SUCCESS)
    fail(Code::memory, what, ": no memory to parse ", text.size(), " bytes of JSON");
  auto error = parser.parse(text.data(), text.size()).get(e);  // copies into a padded buffer
  if (error && lenient) {
    relaxed = without_python_literals(text);
    error = parser.parse(relaxed.data(), relaxed.size()).get(e);
  }
  if (error) fail(Code::format, what, ": not valid JSON: ", simdjson::error_message(error));
  JsonDoc doc;
  doc.strings_.reset(new char[string_bytes(e) + 1]);
  Flattener f{doc.nodes_, doc.strings_.get()};
  f.put(e);
  return doc;
}

std::string_view kind_name(Json::Kind k) {
  static constexpr std::string_view names[] = {"nothing", "null", "a boolean", "an integer", "a number", "a string", "an array", "an object"};
  return names[size_t(k)];
}

namespace {
[[noreturn]] void wrong_kind(std::string_view what, std::string_view want, const Json& got) {
  fail(Code::format, what, ": expected ", want, ", got ", kind_name(got.kind()));
}
}  // namespace

bool Json::boolean(std::string_view what) const {
  if (kind() != Kind::boolean) wrong_kind(what, "a boolean", *this);
  return n_->b;
}
int64_t Json::integer(std::string_view what) const {
  if (kind() == Kind::integer && !n_->is_u64) return n_->i;
  if (kind() == Kind::number && n_->d == std::floor(n_->d) && std::fabs(n_->d) < 9e15) return int64_t(n_->d);
  wrong_kind(what, "an integer", *this);
}
uint64_t Json::unsigned_integer(std::string_view what) const {
  if (kind() == Kind::integer && n_->is_u64) return uint64_t(n_->i);
  int64_t v = integer(what);
  if (v < 0) fail(Code::format, what, ": ", v, " is negative");
  return uint64_t(v);
}
double Json::number(std::string_view what) const {
  if (kind() == Kind::integer) return n_->is_u64 ? double(uint64_t(n_->i)) : double(n_->i);
  if (kind() != Kind::number) wrong_kind(what, "a number", *this);
  return n_->d;
}
std::string_view Json::string(std::string_view what) const {
  if (kind() != Kind::string) wrong_kind(what, "a string", *this);
  return {n_->s, n_->size};
}
Json Json::operator[](std::string_view key) const {
  for (auto [k, v] : members())
    if (k == key) return v;
  return {};
}
Json Json::operator[](size_t index) const {
  for (Json e : elements())
    if (index-- == 0) return e;
  return {};
}

void json_quote(std::string& out, std::string_view s) {
  static const char hex[] = "0123456789abcdef";
  out += '"';
  for (size_t i = 0; i < s.size();) {
    auto c = static_cast<unsigned char>(s[i]);
    if (c == '"' || c == '\\') (out += '\\') += char(c), i++;
    else if (c == '\n') out += "\\n", i++;
    else if (c == '\r') out += "\\r", i++;
    else if (c == '\t') out += "\\t", i++;
    else if (c < 0x20 || c == 0x7f) ((out += "\\u00") += hex[c >> 4]) += hex[c & 15], i++;
    else if (c < 0x80) out += char(c), i++;
    else {
      // One well-formed UTF-8 sequence (Unicode 15, table 3-7) or one replacement character for one bad byte.
      size_t n = c >= 0xf0 && c <= 0xf4 ? 4 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xc2 && c < 0xe0 ? 2 : 0;
      bool ok = n && i + n <= s.size();
      for (size_t j = 1; ok && j < n; j++) ok = (static_cast<unsigned char>(s[i + j]) & 0xc0) == 0x80;
      if (ok && n > 2) {
        auto d = static_cast<unsigned char>(s[i + 1]);
        ok = !(c == 0xe0 && d < 0xa0) && !(c == 0xed && d >= 0xa0) && !(c == 0xf0 && d < 0x90) && !(c == 0xf4 && d >= 0x90);
      }
      if (ok) out += s.substr(i, n), i += n;
      else out += "\xef\xbf\xbd", i++;
    }
  }
  out += '"';
}

void JsonWriter::comma() {
  if (!first_ && !after_key_) out_ += ',';
  first_ = after_key_ = false;
}
JsonWriter& JsonWriter::open(char c) {
  comma();
  out_ += c;
  first_ = true;
  return *this;
}
JsonWriter& JsonWriter::close(char c) {
  out_ += c;
  first_ = false;
  return *this;
}
JsonWriter& JsonWriter::key(std::string_view k) {
  comma();
  json_quote(out_, k);
  out_ += ':';
  after_key_ = true;
  return *this;
}
JsonWriter& JsonWriter::value(std::string_view v) {
  comma();
  json_quote(out_, v);
  return *this;
}
JsonWriter& JsonWriter::value(double v) { return std::isfinite(v) ? raw(cat(v)) : null(); }
JsonWriter& JsonWriter::raw(std::string_view text) {
  comma();
  out_ += text;
  return *this;
}
JsonWriter& JsonWriter::value(Json v) {
  switch (v.kind()) {
    case Json::Kind::missing:
    case Json::Kind::null: return null();
    case Json::Kind::boolean: return value(v.boolean(""));
    case Json::Kind::integer: return v.node()->is_u64 ? value(uint64_t(v.node()->i)) : value(v.node()->i);
    case Json::Kind::number: return value(v.number(""));
    case Json::Kind::string: return value(v.string(""));
    case Json::Kind::array:
      begin_array();
      for (Json e : v.elements()) value(e);
      return end_array();
    case Json::Kind::object:
      begin_object();
      for (auto [k, e] : v.members()) key(k).value(e);
      return end_object();
  }
  return *this;
}

}  // namespace tealight
