#include "src/io/safetensors.h"

#include <algorithm>
#include <cstring>

#include "src/base/checked.h"
#include "src/base/error.h"
#include "src/base/json.h"

namespace tealight {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;   // as the reference package
constexpr size_t kMaxIndexBytes = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";

struct FileType {
  std::string_view name;
  uint8_t bits;
  Dtype dtype;   // Dtype::count: the format knows it, we cannot compute with it
};
constexpr FileType kFileTypes[] = {
    {"F32", 32, Dtype::f32}, {"F16", 16, Dtype::f16}, {"BF16", 16, Dtype::bf16}, {"F64", 64, Dtype::f64},
    {"I8", 8, Dtype::i8}, {"I16", 16, Dtype::i16}, {"I32", 32, Dtype::i32}, {"I64", 64, Dtype::i64},
    {"U8", 8, Dtype::u8}, {"U16", 16, Dtype::u16}, {"U32", 32, Dtype::u32}, {"U64", 64, Dtype::u64},
    {"BOOL", 8, Dtype::boolean}, {"F8_E4M3", 8, Dtype::f8_e4m3}, {"F8_E5M2", 8, Dtype::f8_e5m2},
    {"F8_E8M0", 8, Dtype::count}, {"F8_E4M3FNUZ", 8, Dtype::count}, {"F8_E5M2FNUZ", 8, Dtype::count},
    {"F4", 4, Dtype::count}, {"F6_E2M3", 6, Dtype::count}, {"F6_E3M2", 6, Dtype::count}, {"C64", 64, Dtype::count},
};

// A whole number as JSON writes it: 2.0 is none.
uint64_t whole(Json v, const std::string& what) {
  if (!v.is(Json::Kind::integer)) fail(Code::format, what, ": expected an integer, got ", kind_name(v.kind()));
  return v.unsigned_integer(what);
}

// The description of one tensor. `offset` is relative to the data section and `data` is not set.
WeightView read_tensor(std::string_view name, Json v, const std::string& what) {
  WeightView w;
  w.name = name;
  if (!v.is_object()) fail(Code::format, what, ": expected an object, got ", kind_name(v.kind()));
  std::string_view dtype = v["dtype"].string(what + ": dtype");
  const FileType* type = nullptr;
  for (const FileType& t : kFileTypes)
    if (t.name == dtype) type = &t;
  if (!type) fail(Code::format, what, ": unknown dtype ", quoted(dtype));
  w.type_name = type->name;
  w.computable = type->dtype != Dtype::count;
  if (w.computable) w.dtype = type->dtype;

  Json shape = v["shape"], range = v["data_offsets"];
  if (!shape.is_array()) fail(Code::format, what, ": shape: expected an array, got ", kind_name(shape.kind()));
  if (shape.size() > size_t(WeightView::kMaxRank))
    fail(Code::format, what, ": ", shape.size(), " dimensions; at most ", WeightView::kMaxRank, " are supported");
  uint64_t bits = type->bits;
  for (Json d : shape.elements()) {
    uint64_t n = whole(d, what + ": shape");
    auto product = checked_mul(bits, n);
    if (!product) fail(Code::format, what, ": the size overflows 64 bits");
    bits = *product;
    w.shape[w.rank++] = n;
  }
  if (!range.is_array() || range.size() != 2) fail(Code::format, what, ": data_offsets: expected an array of two offsets");
  const uint64_t begin = whole(range[size_t(0)], what + ": data_offsets"), end = whole(range[1], what + ": data_offsets");
  if (begin > end) fail(Code::format, what, ": data_offsets: begin ", begin, " is after end ", end);
  if (bits % 8 || bits / 8 != end - begin)
    fail(Code::format, what, ": dtype and shape need ", bits / 8, " bytes; data_offsets say ", end - begin);
  w.offset = begin;
  w.bytes = end - begin;
  return w;
}

// Fails when two members of an object have one name.
void check_unique(Json object, std::string_view where) {
  std::vector<std::string_view> keys;
  for (auto [k, v] : object.members()) keys.push_back(k);
  std::sort(keys.begin(), keys.end());
  auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) fail(Code::format, where, ": duplicate key ", quoted(*twice));
}

// The data section must be covered exactly: no gap, no overlap, nothing before, nothing behind.
void check_cover(const std::vector<WeightView>& tensors, const std::string& path, uint64_t data_bytes) {
  std::vector<const WeightView*> order;
  for (const WeightView& w : tensors) order.push_back(&w);
  std::sort(order.begin(), order.end(), [](const WeightView* a, const WeightView* b) {
    return a->offset != b->offset ? a->offset < b->offset : a->bytes < b->bytes;
  });
  uint64_t covered = 0;
  for (const WeightView* w : order) {
    if (!inside(w->offset, w->bytes, data_bytes))
      fail(Code::format, path, ": tensor ", quoted(w->name), ": bytes ", w->offset, " to ", w->offset + w->bytes,
           " reach beyond the ", data_bytes, " bytes of data");
    if (w->offset != covered)
      fail(Code::format, path, ": tensor ", quoted(w->name), ": begins at ", w->offset,
           w->offset < covered ? ", inside the tensor before it, which ends at " : "; there is a gap after ", covered);
    covered += w->bytes;
  }
  if (covered != data_bytes)
    fail(Code::format, path, ": the tensors cover ", covered, " of ", data_bytes, " bytes of data");
}

}  // namespace

Safetensors Safetensors::parse(std::shared_ptr<const Mapping> file) {
  const std::string& path = file->path();
  if (file->size() < 8) fail(Code::format, path, ": ", file->size(), " bytes are too few for a safetensors file");
  uint64_t header_bytes;
  std::memcpy(&header_bytes, file->data(), 8);
  if (header_bytes > kMaxHeaderBytes)
    fail(Code::format, path, ": the header length at byte 0 is ", header_bytes, "; at most ", kMaxHeaderBytes, " are supported");
  if (header_bytes > file->size() - 8)
    fail(Code::format, path, ": the header of ", header_bytes, " bytes reaches beyond the end of the file");
  const uint64_t data_begin = 8 + header_bytes;
  auto header = std::make_shared<JsonDoc>(JsonDoc::parse(file->text().substr(8, header_bytes), path + ": header"));
  if (!header->root().is_object())
    fail(Code::format, path, ": the header is ", kind_name(header->root().kind()), ", not an object");
  check_unique(header->root(), path);

  Safetensors s;
  std::vector<WeightView> tensors;
  for (auto [name, v] : header->root().members()) {
    if (name == kMetadata) {
      if (!v.is_object()) fail(Code::format, path, ": ", kMetadata, ": expected an object, got ", kind_name(v.kind()));
      check_unique(v, cat(path, ": ", kMetadata));
      for (auto [k, text] : v.members())
        s.metadata.emplace_back(k, text.string(cat(path, ": ", kMetadata, ": ", quoted(k))));
    } else {
      tensors.push_back(read_tensor(name, v, cat(path, ": tensor ", quoted(name))));
    }
  }
  check_cover(tensors, path, file->size() - data_begin);
  for (WeightView& w : tensors) {
    w.offset += data_begin;
    w.data = file->data() + w.offset;
    s.weights.add(w);
  }
  s.weights.add_file(std::move(file));
  s.weights.keep(std::move(header));
  s.weights.index();
  return s;
}

Safetensors Safetensors::open(const std::string& path) { return parse(Mapping::open(path)); }

Safetensors Safetensors::open_index(const std::string& index_path) {
  JsonDoc index = JsonDoc::parse(read_text_file(index_path, kMaxIndexBytes), index_path);
  Json map = index["weight_map"];
  if (!map.is_object()) fail(Code::format, index_path, ": weight_map: expected an object, got ", kind_name(map.kind()));
  check_unique(map, cat(index_path, ": weight_map"));
  const std::string folder = index_path.substr(0, index_path.rfind('/') + 1);

  Safetensors all;
  std::vector<std::string_view> names;                  // of the shards, in order of first mention
  std::vector<std::shared_ptr<Safetensors>> shards;
  for (auto [tensor, v] : map.members()) {
    const std::string what = cat(index_path, ": weight_map: ", quoted(tensor));
    std::string_view shard = v.string(what);
    size_t at = size_t(std::find(names.begin(), names.end(), shard) - names.begin());
    if (at == names.size()) {
      // Only a plain name: the index may not point outside its folder.
      if (shard.empty() || shard == "." || shard == ".." || shard.find_first_of(std::string_view("/\\\0", 3)) != shard.npos)
        fail(Code::format, what, ": ", quoted(shard), " is not a plain file name");
      names.push_back(shard);
      shards.push_back(std::make_shared<Safetensors>(open(folder + std::string(shard))));
      all.weights.add_file(shards[at]->weights.files()[0]);
    }
    const WeightView* w = shards[at]->weights.find(tensor);
    if (!w) fail(Code::format, what, ": the tensor is not in ", quoted(shard));
    WeightView copy = *w;
    copy.file = uint32_t(at);
    all.weights.add(copy);
  }
  if (!shards.empty()) all.metadata = shards[0]->metadata;
  for (auto& s : shards) all.weights.keep(std::move(s));   // owns the names
  all.weights.index();
  return all;
}

namespace {
std::string header_text(const std::vector<SafetensorsWriter::Declared>& tensors,
                        const std::vector<std::pair<std::string, std::string>>& metadata, uint64_t* data_bytes) {
  std::string header(8, '\0');
  JsonWriter w(header);
  w.begin_object();
  if (!metadata.empty()) {
    w.key(kMetadata).begin_object();
    for (const auto& [k, v] : metadata) w.field(k, v);
    w.end_object();
  }
  *data_bytes = 0;
  for (const auto& t : tensors) {
    uint64_t bytes = uint64_t(info(t.dtype).bytes);
    TEALIGHT_CHECK(!is_quantized(t.dtype));   // safetensors has no such types
    w.key(t.name).begin_object().field("dtype", name(t.dtype)).key("shape").begin_array();
    for (uint64_t d : t.shape) {
      w.value(d);
      bytes *= d;
    }
    w.end_array().key("data_offsets").begin_array().value(*data_bytes).value(*data_bytes + bytes).end_array().end_object();
    *data_bytes += bytes;
  }
  w.end_object();
  header.resize(align_up(header.size(), 8), ' ');
  const uint64_t header_bytes = header.size() - 8;
  std::memcpy(header.data(), &header_bytes, 8);
  return header;
}
}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<Declared>& tensors,
                                     const std::vector<std::pair<std::string, std::string>>& metadata)
    : file_(path) {
  std::string header = header_text(tensors, metadata, &left_);
  file_.write(header.data(), header.size());
}

void SafetensorsWriter::write(const void* data, size_t bytes) {
  TEALIGHT_CHECK(bytes <= left_);
  file_.write(data, bytes);
  left_ -= bytes;
}

void SafetensorsWriter::finish() {
  TEALIGHT_CHECK(left_ == 0);
  file_.finish();
}

}  // namespace tealight
