#include "src/pack/directory.h"

#include <cstring>

#include "src/base/checked.h"
#include "src/base/error.h"
#include "src/pack/format.h"

namespace tealight::pack {
namespace {

constexpr uint64_t kMinTensorBytes = 4 + 3 + 8 + 8;   // name length, layout, rank and type, offset, size

class Writer {
 public:
  template <class T>
  void number(T v) {
    out.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  void text(std::string_view s) {
    number(uint32_t(s.size()));
    out += s;
  }
  std::string out;
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& what) : bytes_(bytes), what_(what) {}
  template <class... A>
  [[noreturn]] void bad(const A&... a) const {
    fail(Code::format, what_, "at byte ", at_, ": ", a...);
  }
  template <class T>
  T number() {
    if (left() < sizeof(T)) bad("it ends inside a number");
    T v;
    std::memcpy(&v, bytes_.data() + at_, sizeof v);
    at_ += sizeof v;
    return v;
  }
  std::string_view text() {
    const uint32_t n = number<uint32_t>();
    if (n > left()) bad("a text of ", n, " bytes passes the end");
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  // How many entries follow, each of at least `least` bytes.
  uint32_t count(uint64_t least) {
    const uint32_t n = number<uint32_t>();
    if (n > left() / least) bad(n, " entries pass the end");
    return n;
  }
  uint64_t left() const { return bytes_.size() - at_; }

 private:
  std::string_view bytes_;
  const std::string& what_;
  size_t at_ = 0;
};

Dtype dtype_named(std::string_view name, const Reader& r) {
  for (int i = 0; i < kDtypes; i++)
    if (name == kDtypeInfo[i].name) return Dtype(i);
  r.bad("the element type ", quoted(name), " is not known");
}

uint64_t element_bytes(GgufType t) {
  static constexpr uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return uint32_t(t) < sizeof bytes ? bytes[uint32_t(t)] : 0;
}

void read_tensor(Reader& r, WeightView& t, std::span<const Dtype> types, uint64_t& end, uint64_t section) {
  t.name = r.text();
  if (t.name.empty()) r.bad("a tensor without a name");
  const auto type = r.number<uint8_t>(), layout = r.number<uint8_t>(), rank = r.number<uint8_t>();
  if (type >= types.size()) r.bad("tensor ", quoted(t.name), ": element type ", int(type), " of ", types.size());
  t.dtype = types[type];
  t.type_name = name(t.dtype);
  if (layout > 1) r.bad("tensor ", quoted(t.name), ": layout ", int(layout));
  t.interleaved = layout == 1;
  if (rank > WeightView::kMaxRank) r.bad("tensor ", quoted(t.name), ": ", int(rank), " dimensions");
  t.rank = rank;
  for (int i = 0; i < t.rank; i++) t.shape[i] = r.number<uint64_t>();
  t.offset = r.number<uint64_t>();
  t.bytes = r.number<uint64_t>();
  const auto bytes = tensor_bytes(t.dtype, {t.shape, size_t(t.rank)}, t.interleaved);
  if (!bytes || *bytes != t.bytes) r.bad("tensor ", quoted(t.name), ": ", t.bytes, " bytes do not fit its type and shape");
  if (t.offset % kTensorAlignment || t.offset < end || !inside(t.offset, t.bytes, section))
    r.bad("tensor ", quoted(t.name), ": ", t.bytes, " bytes at ", t.offset, " overlap another tensor or pass the end of the section");
  end = t.offset + t.bytes;
}

void read_array(Reader& r, Directory::Array& a, uint64_t& end, uint64_t section) {
  a.key = r.text();
  a.type = GgufType(r.number<uint32_t>());
  a.count = r.number<uint64_t>();
  a.offset = r.number<uint64_t>();
  a.bytes = r.number<uint64_t>();
  if (a.key.empty() || a.offset < end || a.offset % 8 || !inside(a.offset, a.bytes, section))
    r.bad("array ", quoted(a.key), ": ", a.bytes, " bytes at ", a.offset, " overlap another one or pass the end of the section");
  end = a.offset + a.bytes;
  if (a.type == GgufType::string) {
    if (a.count > a.bytes / 8) r.bad("array ", quoted(a.key), ": ", a.count, " strings in ", a.bytes, " bytes");
    return;
  }
  const auto bytes = checked_mul(a.count, element_bytes(a.type));
  if (!element_bytes(a.type) || !bytes || *bytes != a.bytes) r.bad("array ", quoted(a.key), ": ", a.bytes, " bytes do not fit its type");
}

void read_table(Reader& r, Directory::Table& t, uint64_t& end, uint64_t section) {
  t.which = r.number<uint32_t>();
  t.offset = r.number<uint64_t>();
  t.count = r.number<uint64_t>();
  const auto bytes = checked_mul(t.count, 4);
  if (t.which >= TokenizerTables::count || !bytes || t.offset < end || t.offset % 8 || !inside(t.offset, *bytes, section))
    r.bad("table ", t.which, ": ", t.count, " words at ", t.offset, " overlap another one or pass the end of the section");
  end = t.offset + *bytes;
}

void read_prefix(Reader& r, Directory::Prefix& p) {
  p.name = r.text();
  p.ids.resize(r.count(sizeof(TokenId)));
  for (TokenId& id : p.ids)
    if ((id = r.number<TokenId>()) < 0) r.bad("prefix ", quoted(p.name), ": token ", id);
  if (p.ids.empty()) r.bad("prefix ", quoted(p.name), " has no tokens");
}

}  // namespace

std::optional<uint64_t> tensor_bytes(Dtype t, std::span<const uint64_t> shape, bool interleaved) {
  uint64_t elements = 1;
  for (uint64_t d : shape) {
    const auto product = checked_mul(elements, d);
    if (!product || d == 0 || *product > uint64_t(INT64_MAX)) return std::nullopt;
    elements = *product;
  }
  if (!interleaved) {
    if ((shape.empty() ? 1 : shape.back()) % uint64_t(info(t).block)) return std::nullopt;
    return checked_mul(elements / uint64_t(info(t).block), uint64_t(info(t).bytes));
  }
  if (!has_x16(t) || shape.size() < 2 || shape.size() > 3) return std::nullopt;
  const uint64_t columns = shape.back(), rows = elements / columns;
  if (columns % uint64_t(info(t).block) || columns > uint64_t(INT32_MAX) || (shape.size() == 3 && shape[1] % 16)) return std::nullopt;
  return checked_mul(align_up(rows, 16), x16_row_bytes(t, columns));
}

std::string Directory::bytes() const {
  Writer w;
  w.number(uint32_t(source));
  w.text(name(kv));
  w.text(model);
  w.number(fingerprint);
  std::vector<Dtype> types;
  std::vector<uint8_t> type_of;
  for (const WeightView& t : tensors) {
    size_t i = 0;
    while (i < types.size() && types[i] != t.dtype) i++;
    if (i == types.size()) types.push_back(t.dtype);
    type_of.push_back(uint8_t(i));
  }
  w.number(uint32_t(types.size()));
  for (Dtype t : types) w.text(name(t));
  w.number(uint32_t(tensors.size()));
  for (size_t i = 0; i < tensors.size(); i++) {
    const WeightView& t = tensors[i];
    w.text(t.name);
    w.number(type_of[i]);
    w.number(uint8_t(t.interleaved));
    w.number(uint8_t(t.rank));
    for (int d = 0; d < t.rank; d++) w.number(t.shape[d]);
    w.number(t.offset);
    w.number(t.bytes);
  }
  w.number(uint32_t(arrays.size()));
  for (const Array& a : arrays) {
    w.text(a.key);
    w.number(uint32_t(a.type));
    w.number(a.count);
    w.number(a.offset);
    w.number(a.bytes);
  }
  w.number(uint32_t(tables.size()));
  for (const Table& t : tables) {
    w.number(t.which);
    w.number(t.offset);
    w.number(t.count);
  }
  w.number(uint32_t(prefixes.size()));
  for (const Prefix& p : prefixes) {
    w.text(p.name);
    w.number(uint32_t(p.ids.size()));
    for (TokenId id : p.ids) w.number(id);
  }
  return std::move(w.out);
}

Directory Directory::read(std::string_view bytes, uint64_t tensors_bytes, uint64_t tokenizer_bytes, const std::string& what) {
  Reader r(bytes, what);
  Directory d;
  d.source = SourceKind(r.number<uint32_t>());
  if (d.source != SourceKind::gguf && d.source != SourceKind::hf) r.bad("source ", uint32_t(d.source));
  d.kv = dtype_named(r.text(), r);
  if (d.kv != Dtype::f16 && d.kv != Dtype::f32 && d.kv != Dtype::q8_0 && d.kv != Dtype::q4_0) r.bad("keys and values of type ", name(d.kv));
  d.model = r.text();
  d.fingerprint = r.number<uint64_t>();
  Dtype types[256];
  const uint32_t n_types = r.count(4);
  if (n_types > 256) r.bad(n_types, " element types");
  for (uint32_t i = 0; i < n_types; i++) types[i] = dtype_named(r.text(), r);
  uint64_t end = 0;
  d.tensors.resize(r.count(kMinTensorBytes));
  for (WeightView& t : d.tensors) read_tensor(r, t, {types, n_types}, end, tensors_bytes);
  end = 0;
  d.arrays.resize(r.count(4 + 4 + 8 + 8 + 8));
  for (Array& a : d.arrays) read_array(r, a, end, tokenizer_bytes);
  d.tables.resize(r.count(4 + 8 + 8));
  for (Table& t : d.tables) read_table(r, t, end, tokenizer_bytes);
  d.prefixes.resize(r.count(4 + 4 + 4));
  for (Prefix& p : d.prefixes) read_prefix(r, p);
  if (r.left()) r.bad(r.left(), " bytes are left over");
  return d;
}

}  // namespace tealight::pack
