#include "src/io/output_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "src/base/error.h"
#include "src/base/fd.h"

namespace tealight {

OutputFile::OutputFile(const std::string& path, bool executable) : path_(path), tmp_(path + ".tmp") {
  fd_ = ::open(tmp_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail(Code::file, tmp_, ": ", std::strerror(errno));
  if (executable) fchmod(fd_, 0755);
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(tmp_.c_str());
}

void OutputFile::write(const void* data, size_t bytes) {
  if (!write_all(fd_, {static_cast<const char*>(data), bytes})) fail(Code::file, tmp_, ": cannot write: ", std::strerror(errno));
}

void OutputFile::finish() {
  if (std::rename(tmp_.c_str(), path_.c_str()) != 0) fail(Code::file, path_, ": cannot write: ", std::strerror(errno));
  if (::close(std::exchange(fd_, -1)) != 0) fail(Code::file, path_, ": cannot write: ", std::strerror(errno));
}

}  // namespace tealight
