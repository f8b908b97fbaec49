// One kept-alive connection to the Runtime API: plain HTTP/1.1 over a blocking socket, without resolver or proxies.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/host/http.h"

namespace tealight::lambda {

struct ApiAddress {
  sockaddr_storage address{};
  socklen_t size = 0;
  std::string host;                    // as it was given; what the Host header says
  uint16_t port() const;
};
// "127.0.0.1:9001", "[::1]:9001" or "localhost:9001"; names need a resolver, which a static binary in an empty root has not.
bool parse_address(std::string_view text, ApiAddress& out);


class Connection {
 public:
  // `address` and `agent` (the User-Agent) must outlive it. Connects with the first call.
  Connection(const ApiAddress& address, std::string_view agent) : address_(address), agent_(agent) {}
  ~Connection() { close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends a request and waits for its response, however long that takes. `headers`: whole lines. False: no valid response
  // came; error() says why, and the connection is closed.
  bool call(std::string_view method, std::string_view path, std::string_view headers = {}, std::string_view body = {}) {
    return send(method, path, headers, body) && receive();
  }
  bool send(std::string_view method, std::string_view path, std::string_view headers, std::string_view body);
  bool receive();
  const HttpParser& response() const { return parser_; }
  std::string take_body() { return parser_.take_body(); }
  const std::string& error() const { return error_; }
  bool reused() const { return reused_; }      // the last call went over a connection that had answered before

  // A request whose body is sent in pieces: its head (without Content-Length), then parts of the chunked body as they are.
  // Waits until `deadline_us` (monotonic; 0: for ever) where the reader is slow.
  void append_head(std::string& out, std::string_view method, std::string_view path, std::string_view headers) const;
  bool open();
  bool write(std::string_view bytes, int64_t deadline_us);
  // Nothing has come back yet, so the peer is still reading. Does not wait.
  bool quiet() const;
  void close();

 private:
  bool fail_call(std::string_view what, int error = 0);
  const ApiAddress& address_;
  const std::string_view agent_;
  int fd_ = -1;
  bool used_ = false, reused_ = false;
  HttpParser parser_{HttpParser::Kind::response, {.head_bytes = 256 << 10}};
  std::string head_, error_;
};

}  // namespace tealight::lambda
