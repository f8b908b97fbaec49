#include "src/io/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "src/base/checked.h"
#include "src/base/error.h"

namespace tealight {
namespace {

// Limits of the format document, and ours where it has none.
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 64;
constexpr uint64_t kMaxElements = INT64_MAX;
constexpr uint64_t kMinPairBytes = 8 + 1 + 4 + 1;               // key length, key, type, value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;     // name length, name, n_dims, one dimension, type, offset

// Element types by the number that GGUF gives them; those that were removed from the format have no row.
struct FileType {
  uint32_t number;
  const char* name;
  Dtype dtype;          // Dtype::count: the format knows it, we cannot compute with it
  uint16_t block, bytes;
};
constexpr FileType known(uint32_t number, Dtype t) {
  return {number, info(t).name, t, uint16_t(info(t).block), uint16_t(info(t).bytes)};
}
constexpr FileType kFileTypes[] = {
    known(0, Dtype::f32),      known(1, Dtype::f16),     known(2, Dtype::q4_0),   known(3, Dtype::q4_1),
    known(6, Dtype::q5_0),     known(7, Dtype::q5_1),    known(8, Dtype::q8_0),   known(9, Dtype::q8_1),
    known(10, Dtype::q2_k),    known(11, Dtype::q3_k),   known(12, Dtype::q4_k),  known(13, Dtype::q5_k),
    known(14, Dtype::q6_k),    known(15, Dtype::q8_k),   known(16, Dtype::iq2_xxs), known(17, Dtype::iq2_xs),
    known(18, Dtype::iq3_xxs), known(19, Dtype::iq1_s),  known(20, Dtype::iq4_nl), known(21, Dtype::iq3_s),
    known(22, Dtype::iq2_s),   known(23, Dtype::iq4_xs), known(24, Dtype::i8),    known(25, Dtype::i16),
    known(26, Dtype::i32),     known(27, Dtype::i64),    known(28, Dtype::f64),   known(29, Dtype::iq1_m),
    known(30, Dtype::bf16),    known(34, Dtype::tq1_0),  known(35, Dtype::tq2_0), known(39, Dtype::mxfp4),
    known(40, Dtype::nvfp4),   {41, "Q1_0", Dtype::count, 128, 18},
};

const FileType* file_type(uint32_t number) {
  for (const FileType& t : kFileTypes)
    if (t.number == number) return &t;
  return nullptr;
}

// Bytes of a scalar; 0 for strings, arrays and unknown types.
uint64_t scalar_bytes(uint32_t type) {
  static constexpr uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < sizeof bytes ? bytes[type] : 0;
}

template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Reads one file from front to back; every error carries the file, the offset and what was being read.
class Reader {
 public:
  explicit Reader(const Mapping& file) : file_(file), data_(file.data()), size_(file.size()) {}

  template <class... A>
  [[noreturn]] void bad(const A&... a) const {
    std::string what = subject_;
    if (!name_.empty()) what += cat(" ", quoted(name_));
    else if (!what.empty()) what += cat(" ", index_);
    fail(Code::format, file_.path(), ": at byte ", at_, ": ", what, what.empty() ? "" : ": ", a...);
  }
  template <class T>
  T number(const char* what) {
    if (size_ - at_ < sizeof(T)) bad("the file ends inside ", what);
    T v = load<T>(data_ + at_);
    at_ += sizeof(T);
    return v;
  }
  std::string_view string(const char* what, uint64_t limit) {
    uint64_t n = number<uint64_t>(what);
    if (n > limit) bad(what, " of ", n, " bytes is longer than ", limit);
    if (n > left()) bad(what, " of ", n, " bytes reaches beyond the end of the file");
    return {reinterpret_cast<const char*>(take(n)), n};
  }
  const std::byte* take(uint64_t n) {
    const std::byte* p = data_ + at_;
    at_ += n;
    return p;
  }
  // The length-prefixed strings of an array, walked once to find its end.
  void skip_strings(uint64_t count) {
    if (count > left() / 8) bad("an array of ", count, " strings reaches beyond the end of the file");
    uint64_t at = at_;
    for (uint64_t i = 0; i < count; i++) {
      if (size_ - at < 8) bad("the file ends inside string ", i, " of an array of ", count);
      uint64_t n = load<uint64_t>(data_ + at);
      at += 8;
      if (n > size_ - at)
        bad("string ", i, " of an array of ", count, " has ", n, " bytes and reaches beyond the end of the file");
      at += n;
    }
    at_ = at;
  }
  GgufValue value();
  WeightView tensor(uint32_t file_index);

  uint64_t at() const { return at_; }
  uint64_t left() const { return size_ - at_; }
  // What errors speak of: a pair or tensor by its number, then by its name.
  void subject(const char* what, uint64_t index, std::string_view name = {}) {
    subject_ = what;
    index_ = index;
    name_ = name;
  }

 private:
  const Mapping& file_;
  const std::byte* data_;
  uint64_t size_, at_ = 0;
  const char* subject_ = "";
  uint64_t index_ = 0;
  std::string_view name_;
};

GgufValue Reader::value() {
  uint32_t type = number<uint32_t>("the type of a value");
  GgufValue v;
  if (type == uint32_t(GgufType::array)) {
    type = number<uint32_t>("the element type of an array");
    v.is_array = true;
    v.count = number<uint64_t>("the length of an array");
    if (type == uint32_t(GgufType::array)) bad("arrays of arrays are not supported");
  }
  if (type > uint32_t(GgufType::f64)) bad("unknown ", v.is_array ? "element" : "value", " type ", type);
  v.type = GgufType(type);
  if (v.type != GgufType::string) {
    auto bytes = checked_mul(v.count, scalar_bytes(type));
    if (!bytes || *bytes > left()) bad("an array of ", v.count, " elements reaches beyond the end of the file");
    v.bytes = *bytes;
    v.data = take(v.bytes);
  } else if (v.is_array) {
    uint64_t begin = at_;
    v.data = data_ + begin;
    skip_strings(v.count);
    v.bytes = at_ - begin;
  } else {
    std::string_view s = string("a string", UINT64_MAX);
    v.data = reinterpret_cast<const std::byte*>(s.data());
    v.bytes = s.size();
  }
  return v;
}

// One row of the tensor table. `offset` is still relative to the data section and `data` is not set.
WeightView Reader::tensor(uint32_t file_index) {
  WeightView w;
  w.name = string("a tensor name", kMaxTensorNameBytes);
  if (w.name.empty()) bad("a tensor without a name");
  subject("tensor", 0, w.name);
  uint32_t rank = number<uint32_t>("the number of dimensions");
  if (rank < 1 || rank > 4) bad(rank, " dimensions; a tensor has 1 to 4");
  w.rank = int(rank);
  uint64_t elements = 1;
  for (uint32_t i = 0; i < rank; i++) {
    uint64_t n = number<uint64_t>("a dimension");
    if (n == 0) bad("dimension ", i, " is 0");
    auto product = checked_mul(elements, n);
    if (!product || *product > kMaxElements) bad("more than 2^63 elements");
    elements = *product;
    w.shape[rank - 1 - i] = n;
  }
  w.file = file_index;
  w.file_type = number<uint32_t>("a tensor type");
  const FileType* t = file_type(w.file_type);
  if (!t) bad("unknown tensor type ", w.file_type);
  w.type_name = t->name;
  w.computable = t->dtype != Dtype::count;
  if (w.computable) w.dtype = t->dtype;
  if (uint64_t row = w.shape[rank - 1]; row % t->block)
    bad("rows of ", row, " elements do not consist of whole ", t->name, " blocks of ", t->block);
  auto bytes = checked_mul(elements / t->block, t->bytes);
  if (!bytes) bad("more than 2^64 bytes");
  w.bytes = *bytes;
  w.offset = number<uint64_t>("a tensor offset");
  return w;
}

struct File {
  std::vector<Gguf::Entry> entries;
  std::vector<uint32_t> by_key;
  std::vector<WeightView> tensors;
  uint32_t version = 0;
  uint64_t alignment = 32;
};

const Gguf::Entry* find_entry(std::span<const Gguf::Entry> entries, std::span<const uint32_t> by_key, std::string_view key) {
  auto before = [&](uint32_t i, std::string_view k) { return entries[i].key < k; };
  auto it = std::lower_bound(by_key.begin(), by_key.end(), key, before);
  return it != by_key.end() && entries[*it].key == key ? &entries[*it] : nullptr;
}

// An integer of any width and sign, or any number as a double. Only numbers have a size; bools are no numbers here.
bool is_integer(GgufType t) { return t <= GgufType::i32 || t == GgufType::u64 || t == GgufType::i64; }

uint64_t unsigned_at(std::string_view key, GgufType type, const std::byte* p) {
  int64_t s = 0;
  switch (type) {
    case GgufType::u8: return load<uint8_t>(p);
    case GgufType::u16: return load<uint16_t>(p);
    case GgufType::u32: return load<uint32_t>(p);
    case GgufType::u64: return load<uint64_t>(p);
    case GgufType::i8: s = load<int8_t>(p); break;
    case GgufType::i16: s = load<int16_t>(p); break;
    case GgufType::i32: s = load<int32_t>(p); break;
    case GgufType::i64: s = load<int64_t>(p); break;
    default: fail(Code::format, "key ", quoted(key), ": expected an integer");
  }
  if (s < 0) fail(Code::format, "key ", quoted(key), ": ", s, " is negative");
  return uint64_t(s);
}

double number_at(std::string_view key, GgufType type, const std::byte* p) {
  switch (type) {
    case GgufType::f32: return double(load<float>(p));
    case GgufType::f64: return load<double>(p);
    case GgufType::i8: return load<int8_t>(p);
    case GgufType::i16: return load<int16_t>(p);
    case GgufType::i32: return load<int32_t>(p);
    case GgufType::i64: return double(load<int64_t>(p));
    default:
      if (!is_integer(type)) fail(Code::format, "key ", quoted(key), ": expected a number");
      return double(unsigned_at(key, type, p));
  }
}

void read_metadata(Reader& r, uint64_t n_pairs, File& f) {
  f.entries.reserve(std::min<uint64_t>(n_pairs, 128));
  for (uint64_t i = 0; i < n_pairs; i++) {
    r.subject("metadata pair", i);
    std::string_view key = r.string("a key", kMaxKeyBytes);
    if (key.empty()) r.bad("the key is empty");
    r.subject("key", i, key);
    f.entries.push_back({key, r.value()});
  }
  r.subject("", 0);
  f.by_key.resize(f.entries.size());
  for (uint32_t i = 0; i < f.by_key.size(); i++) f.by_key[i] = i;
  std::sort(f.by_key.begin(), f.by_key.end(), [&](uint32_t a, uint32_t b) { return f.entries[a].key < f.entries[b].key; });
  for (size_t i = 1; i < f.by_key.size(); i++)
    if (std::string_view key = f.entries[f.by_key[i]].key; key == f.entries[f.by_key[i - 1]].key)
      r.bad("key ", quoted(key), " is used twice");
  if (const Gguf::Entry* e = find_entry(f.entries, f.by_key, "general.alignment")) {
    if (e->value.is_array || !is_integer(e->value.type)) r.bad("general.alignment is not an integer");
    f.alignment = unsigned_at(e->key, e->value.type, e->value.data);
    if (!std::has_single_bit(f.alignment) || f.alignment > uint64_t(1) << 30)
      r.bad("general.alignment is ", f.alignment, "; expected a power of two up to 2^30");
  }
}

// Places the tensors in the data section and checks that each lies in the file, alone.
void place_tensors(const Mapping& file, uint64_t table_end, File& f) {
  const uint64_t data_begin = align_up(table_end, f.alignment);
  auto bad = [&](const WeightView& w, const auto&... what) {
    fail(Code::format, file.path(), ": tensor ", quoted(w.name), ": ", what...);
  };
  for (WeightView& w : f.tensors) {
    if (w.offset & (f.alignment - 1)) bad(w, "offset ", w.offset, " is not a multiple of the alignment ", f.alignment);
    auto at = checked_add(data_begin, w.offset);
    if (!at || !inside(*at, w.bytes, file.size()))
      bad(w, w.bytes, " bytes at data offset ", w.offset, " reach beyond the end of the file (data begins at ", data_begin,
          ", the file has ", file.size(), " bytes)");
    w.offset = *at;
    w.data = file.data() + *at;
  }
  std::vector<uint32_t> order(f.tensors.size());
  for (uint32_t i = 0; i < order.size(); i++) order[i] = i;
  auto by_offset = [&](uint32_t a, uint32_t b) { return f.tensors[a].offset < f.tensors[b].offset; };
  if (!std::is_sorted(order.begin(), order.end(), by_offset)) std::sort(order.begin(), order.end(), by_offset);
  for (size_t i = 1; i < order.size(); i++) {
    const WeightView &a = f.tensors[order[i - 1]], &b = f.tensors[order[i]];
    if (a.bytes > b.offset - a.offset) bad(b, "shares bytes with tensor ", quoted(a.name));
  }
}

File parse_file(const Mapping& file, uint32_t file_index) {
  Reader r(file);
  File f;
  if (r.left() < 4 || std::memcmp(file.data(), "GGUF", 4)) r.bad("not a GGUF file (the magic is missing)");
  r.take(4);
  f.version = r.number<uint32_t>("the version");
  if (f.version > 0 && (f.version & 0xffff) == 0) r.bad("big-endian GGUF files are not supported");
  if (f.version != 2 && f.version != 3) r.bad("GGUF version ", f.version, "; versions 2 and 3 are supported");
  uint64_t n_tensors = r.number<uint64_t>("the tensor count");
  uint64_t n_pairs = r.number<uint64_t>("the metadata count");
  if (n_pairs > r.left() / kMinPairBytes) r.bad(n_pairs, " metadata pairs do not fit into the file");
  if (n_tensors > r.left() / kMinTensorBytes) r.bad(n_tensors, " tensors do not fit into the file");
  read_metadata(r, n_pairs, f);
  f.tensors.reserve(std::min<uint64_t>(n_tensors, 1024));
  for (uint64_t i = 0; i < n_tensors; i++) {
    r.subject("tensor", i);
    f.tensors.push_back(r.tensor(file_index));
  }
  place_tensors(file, r.at(), f);
  return f;
}

std::optional<uint64_t> uint_of(const File& f, std::string_view key) {
  const Gguf::Entry* e = find_entry(f.entries, f.by_key, key);
  if (!e) return std::nullopt;
  if (e->value.is_array) fail(Code::format, "key ", quoted(key), ": expected an integer, got an array");
  return unsigned_at(key, e->value.type, e->value.data);
}

std::string digits5(uint64_t n) {
  std::string s = std::to_string(n);
  return std::string(s.size() < 5 ? 5 - s.size() : 0, '0') + s;
}

// PREFIX of PREFIX-0000i-of-0000n.gguf, with i = no + 1; fails when the path is not named so.
std::string split_prefix(const std::string& path, uint64_t no, uint64_t count) {
  std::string tail = cat("-", digits5(no + 1), "-of-", digits5(count), ".gguf");
  if (!path.ends_with(tail))
    fail(Code::format, path, ": file ", no + 1, " of ", count, " of a split model; its name must end in ", tail);
  return path.substr(0, path.size() - tail.size());
}

// All files of a split model of which `opened`, at `path`, is one: the metadata of the first, the tensors of all. `files`
// holds the mapping of `opened`, and then those of all files in order.
File open_split(const std::string& path, uint64_t count, File opened, std::vector<std::shared_ptr<const Mapping>>& files) {
  if (count > 99999) fail(Code::format, path, ": split.count is ", count, "; at most 99999 files");
  const uint64_t opened_no = uint_of(opened, "split.no").value_or(0);
  if (opened_no >= count) fail(Code::format, path, ": split.no is ", opened_no, " with split.count ", count);
  const std::string prefix = split_prefix(path, opened_no, count);
  auto mapping = std::move(files[0]);
  files.clear();
  File all;
  for (uint64_t i = 0; i < count; i++) {
    std::string name = cat(prefix, "-", digits5(i + 1), "-of-", digits5(count), ".gguf");
    files.push_back(i == opened_no ? mapping : Mapping::open(name));
    File part = i == 0 && opened_no == 0 ? std::move(opened) : parse_file(*files[i], uint32_t(i));
    uint64_t part_no = uint_of(part, "split.no").value_or(0), part_count = uint_of(part, "split.count").value_or(1);
    if (part_no != i || part_count != count)
      fail(Code::format, name, ": split.no ", part_no, " of split.count ", part_count, "; expected ", i, " of ", count);
    if (i == 0) all = std::move(part);
    else all.tensors.insert(all.tensors.end(), part.tensors.begin(), part.tensors.end());
  }
  if (auto total = uint_of(all, "split.tensors.count"); total && *total != all.tensors.size())
    fail(Code::format, path, ": ", count, " files have ", all.tensors.size(), " tensors; split.tensors.count says ", *total);
  return all;
}

}  // namespace

std::string_view type_name(GgufType t) {
  static constexpr std::string_view names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                               "bool", "string", "array", "u64", "i64", "f64"};
  return names[size_t(t)];
}

int gguf_type_number(Dtype t) {
  for (const FileType& f : kFileTypes)
    if (f.dtype == t) return int(f.number);
  return -1;
}

Gguf Gguf::open(const std::string& path) { return open(Mapping::open(path)); }

Gguf Gguf::open(std::shared_ptr<const Mapping> mapping) {
  const std::string& path = mapping->path();
  File f = parse_file(*mapping, 0);
  std::vector<std::shared_ptr<const Mapping>> files = {mapping};
  if (uint64_t count = uint_of(f, "split.count").value_or(1); count > 1) f = open_split(path, count, std::move(f), files);
  Gguf g;
  for (auto& m : files) g.weights_.add_file(std::move(m));
  g.take(std::move(f.entries), std::move(f.by_key), f.version, f.alignment, f.tensors);
  return g;
}

Gguf Gguf::parse(std::shared_ptr<const Mapping> file) {
  File f = parse_file(*file, 0);
  if (uint64_t count = uint_of(f, "split.count").value_or(1); count > 1)
    fail(Code::format, file->path(), ": one of the ", count, " files of a split model; it must be opened by its path");
  Gguf g;
  g.weights_.add_file(std::move(file));
  g.take(std::move(f.entries), std::move(f.by_key), f.version, f.alignment, f.tensors);
  return g;
}

void Gguf::take(std::vector<Entry> entries, std::vector<uint32_t> by_key, uint32_t version, uint64_t alignment,
                std::span<const WeightView> tensors) {
  entries_ = std::move(entries);
  by_key_ = std::move(by_key);
  version_ = version;
  alignment_ = alignment;
  for (const WeightView& w : tensors) weights_.add(w);
  weights_.index();
}

void Gguf::add(std::string_view key, const GgufValue& value) {
  auto before = [&](uint32_t i, std::string_view k) { return entries_[i].key < k; };
  const auto at = std::lower_bound(by_key_.begin(), by_key_.end(), key, before);
  if (at != by_key_.end() && entries_[*at].key == key) fail(Code::format, "key ", quoted(key), " is used twice");
  by_key_.insert(at, uint32_t(entries_.size()));
  entries_.push_back({key, value});
}

GgufValue Gguf::find(std::string_view key) const {
  const Entry* e = find_entry(entries_, by_key_, key);
  return e ? e->value : GgufValue();
}

namespace {
void want_single(std::string_view key, const GgufValue& v, const char* what) {
  if (v.is_array) fail(Code::format, "key ", quoted(key), ": expected ", what, ", got an array");
}
}  // namespace

std::optional<uint64_t> Gguf::uint(std::string_view key) const {
  GgufValue v = find(key);
  if (!v) return std::nullopt;
  want_single(key, v, "an integer");
  return unsigned_at(key, v.type, v.data);
}

std::optional<double> Gguf::number(std::string_view key) const {
  GgufValue v = find(key);
  if (!v) return std::nullopt;
  want_single(key, v, "a number");
  return number_at(key, v.type, v.data);
}

std::optional<bool> Gguf::boolean(std::string_view key) const {
  GgufValue v = find(key);
  if (!v) return std::nullopt;
  if (v.is_array || v.type != GgufType::boolean) fail(Code::format, "key ", quoted(key), ": expected a boolean");
  return v.data[0] != std::byte(0);
}

std::optional<std::string_view> Gguf::string(std::string_view key) const {
  GgufValue v = find(key);
  if (!v) return std::nullopt;
  if (v.is_array || v.type != GgufType::string) fail(Code::format, "key ", quoted(key), ": expected a string");
  return std::string_view(reinterpret_cast<const char*>(v.data), v.bytes);
}

std::optional<std::vector<uint64_t>> Gguf::uints(std::string_view key) const {
  GgufValue v = find(key);
  if (!v) return std::nullopt;
  if (!is_integer(v.type)) fail(Code::format, "key ", quoted(key), ": expected integers");
  std::vector<uint64_t> out(v.count);
  for (uint64_t i = 0; i < v.count; i++) out[i] = unsigned_at(key, v.type, v.data + i * scalar_bytes(uint32_t(v.type)));
  return out;
}

std::optional<std::vector<double>> Gguf::numbers(std::string_view key) const {
  GgufValue v = find(key);
  if (!v) return std::nullopt;
  if (v.is_array && v.type != GgufType::f32 && v.type != GgufType::f64)
    fail(Code::format, "key ", quoted(key), ": expected an array of floats, got one of ", type_name(v.type));
  std::vector<double> out(v.count);
  for (uint64_t i = 0; i < v.count; i++) out[i] = number_at(key, v.type, v.data + i * scalar_bytes(uint32_t(v.type)));
  return out;
}

std::optional<std::vector<std::string_view>> Gguf::strings(std::string_view key) const {
  GgufValue v = find(key);
  if (!v) return std::nullopt;
  if (!v.is_array || v.type != GgufType::string) fail(Code::format, "key ", quoted(key), ": expected an array of strings");
  std::vector<std::string_view> out(v.count);
  uint64_t at = 0;
  for (std::string_view& s : out) {
    const uint64_t n = v.bytes - at >= 8 ? load<uint64_t>(v.data + at) : UINT64_MAX;
    if (v.bytes - at < 8 || n > v.bytes - at - 8) fail(Code::format, "key ", quoted(key), ": a string passes the end of the array");
    s = {reinterpret_cast<const char*>(v.data + at + 8), n};
    at += 8 + n;
  }
  return out;
}

}  // namespace tealight
