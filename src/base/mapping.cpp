#include "src/base/mapping.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/fd.h"
#include "src/base/hash.h"

namespace tealight {

std::shared_ptr<const Mapping> Mapping::open(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) fail(Code::file, path, ": ", std::strerror(errno));
  return of_fd(file.get(), path);
}

std::shared_ptr<const Mapping> Mapping::of_fd(int fd, const std::string& path) {
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) fail(Code::file, path, ": not a regular file");
  std::shared_ptr<Mapping> m(new Mapping);
  m->path_ = path;
  m->size_ = size_t(st.st_size);
  const int64_t identity[] = {int64_t(st.st_dev), int64_t(st.st_ino), int64_t(st.st_size), int64_t(st.st_mtim.tv_sec),
                              int64_t(st.st_mtim.tv_nsec), int64_t(st.st_ctim.tv_sec), int64_t(st.st_ctim.tv_nsec)};
  m->identity_ = hash64({reinterpret_cast<const char*>(identity), sizeof identity});
  if (!m->size_) return m;
  void* p = mmap(nullptr, m->size_, PROT_READ, MAP_PRIVATE, fd, 0);
  if (p == MAP_FAILED) fail(Code::file, path, ": cannot map ", m->size_, " bytes: ", std::strerror(errno));
  m->data_ = static_cast<const std::byte*>(p);
  m->mapped_ = true;
  return m;
}

std::shared_ptr<const Mapping> Mapping::part(std::shared_ptr<const Mapping> whole, size_t offset, size_t bytes, std::string name) {
  std::shared_ptr<Mapping> m(new Mapping);
  m->path_ = std::move(name);
  m->data_ = whole->data() + offset;
  m->size_ = bytes;
  m->whole_ = std::move(whole);
  return m;
}

std::shared_ptr<const Mapping> Mapping::from_bytes(std::string bytes) {
  std::shared_ptr<Mapping> m(new Mapping);
  m->owned_ = std::move(bytes);
  m->path_ = "<memory>";
  m->data_ = reinterpret_cast<const std::byte*>(m->owned_.data());
  m->size_ = m->owned_.size();
  return m;
}

Mapping::~Mapping() {
  if (mapped_) munmap(const_cast<std::byte*>(data_), size_);
}

extern "C" const char __executable_start[], etext[];   // defined by the linker: the read-only part of the program

void release_startup_pages() {
  const uintptr_t page = 64 << 10;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(__executable_start) + page - 1) & ~(page - 1);
  const uintptr_t end = reinterpret_cast<uintptr_t>(etext) & ~(page - 1);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::string read_text_file(const std::string& path, size_t max_bytes) {
  auto m = Mapping::open(path);
  if (m->size() > max_bytes) fail(Code::file, path, ": ", m->size(), " bytes, more than the limit of ", max_bytes);
  return std::string(m->text());
}

bool file_exists(const std::string& path) { return ::access(path.c_str(), R_OK) == 0; }

bool is_directory(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

}  // namespace tealight
