#include "src/base/mapping.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/fd.h"
#include "src/base/hash.h"
#include "src/base/log.h"

namespace tealight {
namespace {

// Looks at a few pages without waiting for them. (mincore would call a file of somebody else resident.)
bool some_page_missing(int fd, size_t size) {
  constexpr size_t kLeast = 4 << 20, kProbes = 16;
  constexpr int kNoWait = 8;                               // RWF_NOWAIT
  for (size_t i = 0; size >= kLeast && i < kProbes; i++) {
    char byte;
    iovec to = {&byte, 1};
    if (::syscall(SYS_preadv2, fd, &to, 1L, long(size / kProbes * i), 0L, kNoWait) < 0) return errno == EAGAIN;
  }
  return false;
}

// The files that are mapped, for the handler of bus errors, which may read the list at any time.
std::mutex g_mapped_lock;
Mapping* g_mapped = nullptr;

}  // namespace

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
  // Large pages are then read at once and, where the file system keeps them, mapped at once.
  m->cold_ = some_page_missing(fd, m->size_);
  if (m->cold_) madvise(p, m->size_, MADV_HUGEPAGE);
  const std::lock_guard lock(g_mapped_lock);
  m->next_ = g_mapped;
  g_mapped = m.get();
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
  if (!mapped_) return;
  {
    const std::lock_guard lock(g_mapped_lock);
    Mapping** at = &g_mapped;
    while (*at != this) at = &(*at)->next_;
    *at = next_;
  }
  munmap(const_cast<std::byte*>(data_), size_);
}

void Mapping::on_bus_error(int signal, siginfo_t* info, void*) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  for (const Mapping* m = g_mapped; m; m = m->next_)
    if (at >= m->data_ && at < m->data_ + m->size_) {
      // The fault was in a load from the mapping, so nothing is half done that a line in the log needs.
      log_line(cat(m->path_, ": byte ", at - m->data_, " cannot be read: the file was cut off meanwhile, or its device failed"));
      ::_exit(1);
    }
  ::signal(signal, SIG_DFL);           // comes again
}

void explain_bus_errors() {
  struct sigaction action = {};
  action.sa_sigaction = Mapping::on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
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
