// An open file descriptor, and reads and writes that the system may cut into pieces.
#pragma once
#include <unistd.h>

#include <string_view>
#include <utility>

namespace tealight {

// Owns a descriptor; -1: none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Fd& operator=(Fd&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Writes all bytes, in one write where the system takes them at once. False when that fails (a closed pipe, a full disk); errno
// says why.
bool write_all(int fd, std::string_view bytes);
// Reads exactly so many. False when that fails, or the file ends before.
bool read_all(int fd, void* to, size_t bytes);

}  // namespace tealight
