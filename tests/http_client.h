// A plain client for tests of servers.
#pragma once
#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <string_view>

struct Client {
  int fd;
  explicit Client(int port) : fd(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in a = {};
    a.sin_family = AF_INET;
    a.sin_port = htons(uint16_t(port));
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0);
  }
  ~Client() { close(); }
  void close() {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
  void send(std::string_view bytes) { REQUIRE(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == ssize_t(bytes.size())); }
  // Until the text holds `until`, the other side closes, or five seconds have passed.
  std::string read(std::string_view until = "\x01") {
    std::string out;
    char chunk[4096];
    while (out.find(until) == out.npos) {
      pollfd p = {fd, POLLIN, 0};
      if (::poll(&p, 1, 5000) != 1) return out + "(timed out)";
      const ssize_t n = ::recv(fd, chunk, sizeof chunk, 0);
      if (n <= 0) return out + (n < 0 ? "(reset)" : "(end)");
      out.append(chunk, size_t(n));
    }
    return out;
  }
};

inline std::string call(int port, std::string_view request, std::string_view until = "\x01") {
  Client c(port);
  c.send(request);
  return c.read(until);
}

inline bool wait_for(const std::function<bool()>& condition) {
  for (int i = 0; i < 500 && !condition(); i++) ::usleep(10'000);
  return condition();
}

inline void has(const std::string& text, std::string_view part) {
  INFO("text: ", text.substr(0, 2000));
  CHECK(text.find(part) != text.npos);
}
