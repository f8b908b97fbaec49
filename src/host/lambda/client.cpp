#include "src/host/lambda/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "src/base/error.h"

namespace tealight::lambda {

bool parse_address(std::string_view text, ApiAddress& out) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return false;
  uint32_t port = 0;
  const std::string_view digits = text.substr(colon + 1);
  for (char c : digits) {
    if (c < '0' || c > '9' || port > 65535) return false;
    port = port * 10 + uint32_t(c - '0');
  }
  if (digits.empty() || port == 0 || port > 65535) return false;
  std::string host(text.substr(0, colon));
  auto& v4 = reinterpret_cast<sockaddr_in&>(out.address);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(out.address);
  out.address = {};
  out.host = text;
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(uint16_t(port));
    out.size = sizeof v6;
    return ::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1;
  }
  if (host == "localhost") host = "127.0.0.1";
  v4.sin_family = AF_INET;
  v4.sin_port = htons(uint16_t(port));
  out.size = sizeof v4;
  return ::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1;
}

uint16_t ApiAddress::port() const { return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port); }   // v6 has it there, too

bool Connection::fail_call(std::string_view what, int error) {
  error_ = error ? cat(what, ": ", ::strerror(error)) : std::string(what);
  close();
  return false;
}

void Connection::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool Connection::open() {
  reused_ = fd_ >= 0 && used_;
  if (fd_ >= 0) return true;
  used_ = false;
  fd_ = ::socket(address_.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return fail_call("socket", errno);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address_.address), address_.size) != 0) return fail_call("connect", errno);
  const int one = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return true;
}

void Connection::append_head(std::string& out, std::string_view method, std::string_view path, std::string_view headers) const {
  for (std::string_view part : {method, std::string_view(" "), path, std::string_view(" HTTP/1.1\r\nHost: "), std::string_view(address_.host),
                                std::string_view("\r\nUser-Agent: "), agent_, std::string_view("\r\n"), headers})
    out += part;
}

bool Connection::send(std::string_view method, std::string_view path, std::string_view headers, std::string_view body) {
  if (!open()) return false;
  head_.clear();
  append_head(head_, method, path, headers);
  if (method != "GET") head_ += cat("Content-Length: ", body.size(), "\r\n");
  head_ += "\r\n";
  iovec parts[2] = {{head_.data(), head_.size()}, {const_cast<char*>(body.data()), body.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  for (size_t left = head_.size() + body.size(); left > 0;) {
    const ssize_t sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return fail_call("send", errno);
    left -= size_t(sent);
    size_t skip = size_t(sent);
    for (iovec& part : parts) {
      const size_t n = std::min(skip, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + n;
      part.iov_len -= n;
      skip -= n;
    }
  }
  return true;
}

bool Connection::receive() {
  parser_.reset();
  char buffer[16 << 10];
  while (parser_.state() != HttpParser::State::done) {
    const ssize_t got = ::recv(fd_, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_call("receive", errno);
    if (got == 0) parser_.end_of_input();
    else if (parser_.feed({buffer, size_t(got)}) < size_t(got)) return fail_call("the response is followed by bytes that nobody asked for");
    if (parser_.state() == HttpParser::State::failed) return fail_call(parser_.error());
  }
  used_ = true;
  if (!parser_.keep_alive()) close();
  return true;
}

bool Connection::write(std::string_view bytes, int64_t deadline_us) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(size_t(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return fail_call("send", errno);
    const int64_t left_us = deadline_us - monotonic_us();
    if (deadline_us && left_us <= 0) return fail_call("nobody reads the stream");
    pollfd writable{fd_, POLLOUT, 0};
    ::poll(&writable, 1, deadline_us ? int(std::min<int64_t>(left_us / 1000 + 1, 60000)) : -1);
  }
  return true;
}

bool Connection::quiet() const {
  char c;
  return fd_ >= 0 && ::recv(fd_, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

}  // namespace tealight::lambda
