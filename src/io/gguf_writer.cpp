#include "src/io/gguf_writer.h"

#include "src/base/checked.h"
#include "src/base/error.h"
#include "src/io/gguf.h"
#include "src/io/output_file.h"

namespace tealight {
namespace {

template <class T>
void put(std::string& s, T v) {
  s.append(reinterpret_cast<const char*>(&v), sizeof v);   // little-endian hosts only, like the reader
}
void put_string(std::string& s, std::string_view v) {
  put(s, uint64_t(v.size()));
  s += v;
}
void put_key(std::string& s, std::string_view key, GgufType type) {
  put_string(s, key);
  put(s, uint32_t(type));
}
void put_array(std::string& s, std::string_view key, GgufType type, size_t count) {
  put_key(s, key, GgufType::array);
  put(s, uint32_t(type));
  put(s, uint64_t(count));
}

}  // namespace

void GgufWriter::set(std::string_view key, uint32_t v) {
  if (key == "general.alignment") alignment_ = v;
  put_key(pairs_, key, GgufType::u32);
  put(pairs_, v);
  n_pairs_++;
}
void GgufWriter::set(std::string_view key, int32_t v) {
  put_key(pairs_, key, GgufType::i32);
  put(pairs_, v);
  n_pairs_++;
}
void GgufWriter::set(std::string_view key, uint64_t v) {
  put_key(pairs_, key, GgufType::u64);
  put(pairs_, v);
  n_pairs_++;
}
void GgufWriter::set(std::string_view key, float v) {
  put_key(pairs_, key, GgufType::f32);
  put(pairs_, v);
  n_pairs_++;
}
void GgufWriter::set(std::string_view key, bool v) {
  put_key(pairs_, key, GgufType::boolean);
  put(pairs_, uint8_t(v));
  n_pairs_++;
}
void GgufWriter::set(std::string_view key, std::string_view v) {
  put_key(pairs_, key, GgufType::string);
  put_string(pairs_, v);
  n_pairs_++;
}
void GgufWriter::set(std::string_view key, std::span<const int32_t> v) {
  put_array(pairs_, key, GgufType::i32, v.size());
  for (int32_t e : v) put(pairs_, e);
  n_pairs_++;
}
void GgufWriter::set(std::string_view key, std::span<const float> v) {
  put_array(pairs_, key, GgufType::f32, v.size());
  for (float e : v) put(pairs_, e);
  n_pairs_++;
}
void GgufWriter::set(std::string_view key, std::span<const std::string> v) {
  put_array(pairs_, key, GgufType::string, v.size());
  for (const std::string& e : v) put_string(pairs_, e);
  n_pairs_++;
}

void GgufWriter::set(std::string_view key, const GgufValue& v) {
  if (v.is_array) put_array(pairs_, key, v.type, size_t(v.count));
  else put_key(pairs_, key, v.type);
  if (v.type == GgufType::string && !v.is_array) put(pairs_, v.bytes);
  pairs_.append(reinterpret_cast<const char*>(v.data), size_t(v.bytes));
  n_pairs_++;
}

void GgufWriter::tensor(std::string_view name, Dtype dtype, std::span<const uint64_t> shape, const void* data) {
  TEALIGHT_CHECK(!shape.empty() && shape.size() <= 4 && gguf_type_number(dtype) >= 0);
  uint64_t rows = 1;
  for (uint64_t d : shape.first(shape.size() - 1)) rows *= d;
  tensors_.push_back({std::string(name), dtype, {shape.begin(), shape.end()}, data, rows * row_bytes(dtype, shape.back())});
}

std::string GgufWriter::head() const {
  std::string s = "GGUF";
  put(s, uint32_t(3));
  put(s, uint64_t(tensors_.size()));
  put(s, n_pairs_);
  s += pairs_;
  uint64_t offset = 0;
  for (const Tensor& t : tensors_) {
    put_string(s, t.name);
    put(s, uint32_t(t.shape.size()));
    for (size_t i = t.shape.size(); i-- > 0;) put(s, t.shape[i]);
    put(s, uint32_t(gguf_type_number(t.dtype)));
    put(s, offset);
    offset += align_up(t.bytes, alignment_);
  }
  s.resize(align_up(s.size(), alignment_));
  return s;
}

std::string GgufWriter::bytes() const {
  std::string s = head();
  for (const Tensor& t : tensors_) {
    s.append(static_cast<const char*>(t.data), t.bytes);
    s.resize(align_up(s.size(), alignment_));
  }
  return s;
}

void GgufWriter::write(const std::string& path) const {
  OutputFile file(path);
  const std::string h = head(), padding(alignment_, '\0');
  file.write(h.data(), h.size());
  for (const Tensor& t : tensors_) {
    file.write(t.data, t.bytes);
    file.write(padding.data(), align_up(t.bytes, alignment_) - t.bytes);
  }
  file.finish();
}

}  // namespace tealight
