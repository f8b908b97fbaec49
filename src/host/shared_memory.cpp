#include "src/host/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "src/base/checked.h"
#include "src/base/error.h"

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034               // linux/fcntl.h
#define F_SEAL_SHRINK 2
#endif

namespace tealight {
namespace {

constexpr size_t kMaxRank = 8;

constexpr std::pair<std::string_view, Dtype> kWords[] = {{"f32", Dtype::f32}, {"f16", Dtype::f16}, {"bf16", Dtype::bf16},
                                                           {"i32", Dtype::i32}, {"i64", Dtype::i64}, {"i8", Dtype::i8},
                                                           {"u8", Dtype::u8}};

Dtype dtype_of(std::string_view word, const std::string& where) {
  for (const auto& [name, dtype] : kWords)
    if (name == word) return dtype;
  fail(Code::request, where, ".dtype: ", quoted(word), " is none of f32, f16, bf16, i32, i64, i8, u8");
}

std::string_view word_of(Dtype dtype) {
  for (const auto& [name, d] : kWords)
    if (d == dtype) return name;
  return "";
}

uint64_t number(Json part, std::string_view field, const std::string& where) {
  return part[field].unsigned_integer(cat(where, ".", field));
}

// The descriptor that the request means: one that this process has inherited, or one that came with the request.
int descriptor(Json shm, std::span<const int> files) {
  if (Json passed = shm["passed"]) {
    const uint64_t n = passed.unsigned_integer("shm.passed");
    if (n >= files.size()) fail(Code::request, "shm.passed: ", n, ", but ", files.size(), " descriptors came with the request");
    return files[n];
  }
  const int64_t fd = shm["fd"].integer("shm.fd");
  if (fd < 3 || fd > INT32_MAX) fail(Code::request, "shm.fd: ", fd, " is no descriptor of shared memory");
  return int(fd);
}

// fstat without the C library's, which may use a call with a path.
bool stat_file(int fd, struct stat& st) { return ::syscall(SYS_fstat, fd, &st) == 0; }

}  // namespace

SharedMemory::SharedMemory(Json shm, std::span<const int> files) : shm_(shm) {
  if (!shm.is_object()) fail(Code::request, "shm: expected an object, got ", kind_name(shm.kind()));
  const int fd = descriptor(shm, files);
  // Reading beyond the end of a file that has shrunk kills the process: the client must have given up that right.
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) fail(Code::request, "shm: descriptor ", fd, " is no memory that can be sealed (memfd_create with MFD_ALLOW_SEALING)");
  if (!(seals & F_SEAL_SHRINK)) fail(Code::request, "shm: the memory is not sealed against shrinking (F_SEAL_SHRINK)");
  struct stat st;
  if (!stat_file(fd, st) || st.st_size <= 0) fail(Code::request, "shm: the memory is empty");
  const size_t size = size_t(st.st_size);
  void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  writable_ = p != MAP_FAILED;
  if (!writable_) p = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);   // opened or sealed against writing
  if (p == MAP_FAILED) fail(Code::request, "shm: cannot map ", size, " bytes: ", std::strerror(errno));
  memory_ = {static_cast<std::byte*>(p), size};
}

SharedMemory::~SharedMemory() { ::munmap(memory_.data(), memory_.size()); }

SharedPart SharedMemory::read_part(Json part, const std::string& where) const {
  if (!part.is_object()) fail(Code::request, where, ": expected an object, got ", kind_name(part.kind()));
  SharedPart p;
  if (Json dtype = part["dtype"]) p.dtype = dtype_of(dtype.string(where + ".dtype"), where);
  uint64_t bytes = info(p.dtype).bytes;
  if (Json shape = part["shape"]) {
    if (!shape.is_array() || shape.size() > kMaxRank)
      fail(Code::request, where, ".shape: expected an array of up to ", kMaxRank, " numbers");
    for (Json d : shape.elements()) {
      const uint64_t n = d.unsigned_integer(where + ".shape");
      const auto product = checked_mul(bytes, n);
      if (!product || n > INT64_MAX) fail(Code::request, where, ".shape: larger than any memory");
      p.shape.push_back(int64_t(n));
      bytes = *product;
    }
  } else {
    bytes = number(part, "bytes", where);
    p.shape = {int64_t(bytes) / info(p.dtype).bytes};
  }
  const uint64_t offset = number(part, "offset", where);
  if (!inside(offset, bytes, memory_.size()))
    fail(Code::request, where, ": ", bytes, " bytes from ", offset, " do not lie within the memory's ", memory_.size());
  if (offset % uint64_t(info(p.dtype).bytes)) fail(Code::request, where, ".offset: ", offset, " is not aligned for ", word_of(p.dtype));
  p.bytes = memory_.subspan(offset, bytes);
  return p;
}

SharedPart SharedMemory::part(std::string_view field) const { return read_part(shm_[field], cat("shm.", field)); }
SharedPart SharedMemory::tensor(std::string_view name) const { return read_part(shm_["tensors"][name], cat("shm.tensors.", quoted(name))); }

std::string SharedMemory::text(std::string_view field) const {
  const SharedPart p = part(field);
  return std::string(reinterpret_cast<const char*>(p.bytes.data()), p.bytes.size());
}

std::vector<TokenId> SharedMemory::tokens(std::string_view field) const {
  const SharedPart p = part(field);
  if (p.dtype != Dtype::i32) fail(Code::request, "shm.", field, ".dtype: token ids are i32");
  std::vector<TokenId> ids(p.bytes.size() / sizeof(TokenId));
  std::memcpy(ids.data(), p.bytes.data(), p.bytes.size());
  return ids;
}

std::string_view SharedMemory::output_kind() const {
  Json output = shm_["output"];
  if (!output) return "";
  Json kind = output["kind"];
  const std::string_view word = kind ? kind.string("shm.output.kind") : "text";
  if (word != "text" && word != "logits" && word != "embedding")
    fail(Code::request, "shm.output.kind: ", quoted(word), " is none of text, logits, embedding");
  return word;
}

std::span<std::byte> SharedMemory::output(size_t bytes, Dtype dtype, std::vector<int64_t> shape) {
  SharedPart room = part("output");
  if (!writable_) fail(Code::request, "shm.output: the memory cannot be written");
  if (bytes > room.bytes.size()) fail(Code::request, "shm.output: ", bytes, " bytes are needed, there is room for ", room.bytes.size());
  if (size_t(room.bytes.data() - memory_.data()) % size_t(info(dtype).bytes))
    fail(Code::request, "shm.output.offset: is not aligned for ", word_of(dtype));
  output_ = {dtype, std::move(shape), room.bytes.first(bytes)};
  has_output_ = true;
  return output_.bytes;
}

std::string SharedMemory::output_json() const {
  std::string out;
  if (!has_output_) return out;
  JsonWriter w(out);
  w.begin_object().field("offset", uint64_t(output_.bytes.data() - memory_.data())).field("bytes", uint64_t(output_.bytes.size()));
  w.field("dtype", word_of(output_.dtype)).key("shape").begin_array();
  for (int64_t d : output_.shape) w.value(d);
  w.end_array().end_object();
  return out;
}

std::string without_shared(Json request, const SharedMemory& memory) {
  std::string out;
  JsonWriter w(out);
  w.begin_object();
  for (auto [key, value] : request.members())
    if (key != "shm") w.field(key, value);
  if (memory.has("prompt")) w.field("prompt", memory.text("prompt"));
  else if (memory.has("tokens")) w.field("prompt", "");
  w.end_object();
  return out;
}

void write_values(SharedMemory& memory, std::string_view kind, Lm& lm, std::span<const TokenId> prompt) {
  const auto write = [&](std::span<const float> values) {
    const std::span<std::byte> to = memory.output(values.size_bytes(), Dtype::f32, {int64_t(values.size())});
    std::memcpy(to.data(), values.data(), to.size());
  };
  if (kind == "embedding") return write(lm.embed(prompt));
  if (prompt.empty()) fail(Code::request, "logits: the prompt has no tokens");
  write(lm.start(prompt.size())->eval(prompt));
}

}  // namespace tealight
