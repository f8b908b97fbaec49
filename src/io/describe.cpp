#include "src/io/describe.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/io/gguf.h"
#include "src/io/hf.h"
#include "src/io/safetensors.h"

namespace tealight {
namespace {

constexpr uint64_t kShownElements = 6;
constexpr size_t kShownBytes = 72;

template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Calls f(element) for the first `limit` elements of a value, each as its own C++ type.
template <class F>
void each_element(const GgufValue& v, uint64_t limit, F f) {
  const std::byte* p = v.data;
  const uint64_t n = std::min(v.is_array ? v.count : 1, limit);
  auto numbers = [&]<class T>(T) {
    for (uint64_t i = 0; i < n; i++) f(load<T>(p + i * sizeof(T)));
  };
  switch (v.type) {
    case GgufType::u8: return numbers(uint8_t());
    case GgufType::i8: return numbers(int8_t());
    case GgufType::u16: return numbers(uint16_t());
    case GgufType::i16: return numbers(int16_t());
    case GgufType::u32: return numbers(uint32_t());
    case GgufType::i32: return numbers(int32_t());
    case GgufType::u64: return numbers(uint64_t());
    case GgufType::i64: return numbers(int64_t());
    case GgufType::f32: return numbers(float());
    case GgufType::f64: return numbers(double());
    case GgufType::boolean:
      for (uint64_t i = 0; i < n; i++) f(p[i] != std::byte(0));
      return;
    case GgufType::string:
      if (!v.is_array) return f(std::string_view(reinterpret_cast<const char*>(p), v.bytes));
      for (uint64_t i = 0; i < n; i++) {
        uint64_t bytes = load<uint64_t>(p);
        f(std::string_view(reinterpret_cast<const char*>(p + 8), bytes));
        p += 8 + bytes;
      }
      return;
    case GgufType::array: return;   // arrays of arrays are never accepted
  }
}

// One element as text, or as a JSON value; f32 in its own shortest form.
template <class T>
std::string plain(const T& v) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return quoted(v, kShownBytes);
  } else if constexpr (std::is_same_v<T, float>) {
    char buf[32];
    return std::string(buf, std::to_chars(buf, buf + sizeof buf, v).ptr);
  } else {
    return cat(v);
  }
}
template <class T>
void put_json(JsonWriter& w, const T& v) {
  if constexpr (std::is_same_v<T, float>) {
    if (v - v == 0) w.raw(plain(v));
    else w.null();   // infinity or NaN
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if constexpr (std::is_signed_v<T>) w.value(int64_t(v));
    else w.value(uint64_t(v));
  } else {
    w.value(v);
  }
}

// A name as it stands where it is plain text, else quoted.
std::string printable(std::string_view s) {
  for (char c : s)
    if (c < 0x20 || c > 0x7e) return quoted(s);
  return std::string(s);
}

std::string type_text(const GgufValue& v) {
  return v.is_array ? cat(type_name(v.type), "[", v.count, "]") : std::string(type_name(v.type));
}

std::string value_text(const GgufValue& v) {
  std::string s;
  each_element(v, kShownElements, [&](const auto& e) { s += cat(s.empty() ? "" : ", ", plain(e)); });
  if (!v.is_array) return s;
  return cat("[", s, v.count > kShownElements ? ", ..." : "", "]");
}

std::string shape_text(const WeightView& w) {
  std::string s;
  for (int i = 0; i < w.rank; i++) s += cat(i ? ", " : "", w.shape[i]);
  return cat("[", s, "]");
}

// Rows of cells as left-aligned columns; the numeric ones (a bit for each column) are right-aligned.
std::string table(const std::vector<std::vector<std::string>>& rows, unsigned right) {
  std::vector<size_t> width;
  for (const auto& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t c = 0; c < row.size(); c++) width[c] = std::max(width[c], std::min(row[c].size(), kShownBytes));
  }
  std::string s;
  for (const auto& row : rows) {
    s += " ";
    for (size_t c = 0; c < row.size(); c++) {
      std::string pad(width[c] > row[c].size() ? width[c] - row[c].size() : 0, ' ');
      bool last = c + 1 == row.size();
      s += cat(" ", right >> c & 1 ? pad : "", row[c], right >> c & 1 || last ? "" : pad);
    }
    s += "\n";
  }
  return s;
}

// What the reader of a file found, whatever its format.
struct Contents {
  std::optional<Gguf> gguf;
  std::optional<HfCheckpoint> folder;
  std::optional<Safetensors> safetensors;
  const WeightSet& weights() const { return gguf ? gguf->weights() : folder ? folder->weights : safetensors->weights; }
};

Contents open_any(const std::string& path) {
  Contents c;
  if (is_directory(path)) {
    c.folder = HfCheckpoint::open(path);
  } else if (path.ends_with(".index.json")) {
    c.safetensors = Safetensors::open_index(path);
  } else {
    auto file = Mapping::open(path);
    std::string_view text = file->text();
    if (text.starts_with("GGUF") || path.ends_with(".gguf")) c.gguf = Gguf::open(path);
    else if (path.ends_with(".safetensors") || (text.size() > 8 && text[8] == '{')) c.safetensors = Safetensors::parse(file);
    else fail(Code::format, path, ": neither a GGUF nor a safetensors file");
  }
  return c;
}

uint64_t parameters(const WeightSet& weights) {
  uint64_t n = 0;
  for (const WeightView& w : weights.all()) n += w.elements();
  return n;
}

uint64_t tensor_bytes(const WeightSet& weights) {
  uint64_t n = 0;
  for (const WeightView& w : weights.all()) n += w.bytes;
  return n;
}

std::string describe_text(const Contents& c, const std::string& path) {
  const WeightSet& weights = c.weights();
  std::string s = cat(path, ": ");
  if (c.gguf) s += cat("GGUF version ", c.gguf->version(), ", alignment ", c.gguf->alignment());
  else s += c.folder ? "Hugging Face folder, safetensors" : "safetensors";
  s += cat("\n", weights.all().size(), " tensors, ", parameters(weights), " parameters, ", tensor_bytes(weights), " bytes\n");
  if (weights.files().size() > 1) {
    s += "\nfiles\n";
    std::vector<std::vector<std::string>> rows;
    for (const auto& f : weights.files()) rows.push_back({cat(rows.size()), f->path(), cat(f->size())});
    s += table(rows, 0b101);
  }
  std::vector<std::vector<std::string>> pairs;
  if (c.gguf)
    for (const auto& [key, v] : c.gguf->metadata()) pairs.push_back({printable(key), type_text(v), value_text(v)});
  if (c.safetensors)
    for (const auto& [k, v] : c.safetensors->metadata) pairs.push_back({printable(k), "string", quoted(v, kShownBytes)});
  if (c.folder)
    for (auto [k, v] : c.folder->config.root().members()) {
      std::string text;
      JsonWriter(text).value(v);
      bool cut = text.size() > kShownBytes;
      pairs.push_back({printable(k), printable(text.substr(0, kShownBytes)) + (cut ? "..." : "")});
    }
  if (!pairs.empty()) s += cat("\n", c.folder ? "config.json" : "metadata", "\n", table(pairs, 0));

  std::vector<std::vector<std::string>> rows = {{"name", "type", "shape", "bytes", "offset"}};
  const bool split = weights.files().size() > 1;
  if (split) rows[0].push_back("file");
  for (const WeightView& w : weights.all()) {
    rows.push_back({printable(w.name), std::string(w.type_name), shape_text(w), cat(w.bytes), cat(w.offset)});
    if (split) rows.back().push_back(cat(w.file));
  }
  return s + cat("\ntensors\n", table(rows, 0b111000));
}

std::string describe_json(const Contents& c, const std::string& path) {
  const WeightSet& weights = c.weights();
  std::string s;
  JsonWriter w(s);
  w.begin_object().field("path", path).field("format", c.gguf ? "gguf" : "safetensors");
  if (c.gguf) w.field("version", c.gguf->version()).field("alignment", c.gguf->alignment());
  w.key("files").begin_array();
  for (const auto& f : weights.files())
    w.begin_object().field("path", f->path()).field("bytes", uint64_t(f->size())).end_object();
  w.end_array();
  if (c.folder) w.field("config", c.folder->config.root());
  w.key("metadata").begin_object();
  if (c.gguf)
    for (const auto& [key, v] : c.gguf->metadata()) {
      w.key(key).begin_object().field("type", type_text(v)).key("value");
      if (v.is_array) w.begin_array();
      each_element(v, UINT64_MAX, [&](const auto& e) { put_json(w, e); });
      if (v.is_array) w.end_array();
      w.end_object();
    }
  if (c.safetensors)
    for (const auto& [k, v] : c.safetensors->metadata) w.field(k, v);
  w.end_object().field("parameters", parameters(weights)).field("tensor_bytes", tensor_bytes(weights));
  w.key("tensors").begin_array();
  for (const WeightView& t : weights.all()) {
    w.begin_object().field("name", t.name).field("type", t.type_name).key("shape").begin_array();
    for (int i = 0; i < t.rank; i++) w.value(t.shape[i]);
    w.end_array().field("bytes", t.bytes).field("offset", t.offset).field("file", t.file).end_object();
  }
  w.end_array().end_object();
  return s + "\n";
}

}  // namespace

std::string describe(const std::string& path, bool json) {
  Contents c = open_any(path);
  return json ? describe_json(c, path) : describe_text(c, path);
}

}  // namespace tealight
