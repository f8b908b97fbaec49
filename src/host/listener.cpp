#include "src/host/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "src/base/error.h"

namespace tealight {
namespace {

constexpr int kFirstInherited = 3;   // SD_LISTEN_FDS_START

int listen_on(int family, const void* address, size_t bytes, const std::string& where) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (fd >= 0 && family != AF_UNIX) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (fd < 0 || ::bind(fd, static_cast<const sockaddr*>(address), socklen_t(bytes)) != 0 || ::listen(fd, SOMAXCONN) != 0) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    fail(Code::file, "cannot listen on ", where, ": ", std::strerror(error));
  }
  return fd;
}

bool make_address(const std::string& path, sockaddr_un& a) {
  a = {};
  a.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof a.sun_path) return false;
  std::memcpy(a.sun_path, path.c_str(), path.size() + 1);
  return true;
}

// Does anybody listen on this socket?
bool answers(const sockaddr_un& a) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool yes = ::connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
  ::close(fd);
  return yes;
}

}  // namespace

int listen_tcp(const std::string& host, int& port) {
  const std::string name = host == "localhost" ? "127.0.0.1" : host == "*" ? "0.0.0.0" : host;
  const std::string where = cat(host, " port ", port);
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  int fd;
  if (::inet_pton(AF_INET, name.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(uint16_t(port));
    fd = listen_on(AF_INET, &v4, sizeof v4, where);
  } else if (::inet_pton(AF_INET6, name.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(uint16_t(port));
    fd = listen_on(AF_INET6, &v6, sizeof v6, where);
  } else {
    fail(Code::usage, "--host: ", quoted(host), " is no numeric address; names are not resolved");
  }
  sockaddr_storage own = {};
  socklen_t size = sizeof own;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size);
  port = ntohs(own.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(own).sin_port : reinterpret_cast<sockaddr_in6&>(own).sin6_port);
  return fd;
}

int listen_unix(const std::string& path, unsigned mode) {
  sockaddr_un a, temporary;
  const std::string before = cat(path, ".", ::getpid());
  if (!make_address(path, a) || !make_address(before, temporary))
    fail(Code::usage, "a socket's path has 1 to ", sizeof a.sun_path - 16, " bytes, not ", path.size());
  struct stat s;
  if (::lstat(path.c_str(), &s) == 0 && (!S_ISSOCK(s.st_mode) || answers(a)))
    fail(Code::file, "cannot listen on ", path, ": ", S_ISSOCK(s.st_mode) ? "another process does" : "a file of that name exists");
  ::unlink(before.c_str());
  const int fd = listen_on(AF_UNIX, &temporary, sizeof temporary, path);
  if (::chmod(before.c_str(), mode) != 0 || std::rename(before.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(before.c_str());
    ::close(fd);
    fail(Code::file, "cannot listen on ", path, ": ", std::strerror(error));
  }
  return fd;
}

std::vector<int> inherited_sockets() {
  const char* pid = std::getenv("LISTEN_PID");
  const char* count = std::getenv("LISTEN_FDS");
  std::vector<int> fds;
  if (!pid || !count || std::atol(pid) != ::getpid()) return fds;
  const int n = std::atoi(count);
  for (int fd = kFirstInherited; n <= 1000 && fd < kFirstInherited + n; fd++) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    fds.push_back(fd);
  }
  return fds;
}

}  // namespace tealight
