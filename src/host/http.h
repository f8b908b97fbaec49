// HTTP/1.1 messages (RFC 9112) as bytes come in: one parser for the requests of clients and the responses of a server, and
// the few lines that write both. Nothing here touches a socket.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tealight {

struct HttpLimits {
  size_t head_bytes = 64 << 10;        // start line and headers, and trailers
  size_t headers = 200;
  size_t body_bytes = 16 << 20;
};

// Parses one message after the other. Strict where leniency lets two readers disagree about where a message ends: both
// Content-Length and Transfer-Encoding, differing lengths, bare CR, spaces before a colon, folded lines are errors.
class HttpParser {
 public:
  enum class Kind { request, response };
  explicit HttpParser(Kind kind, HttpLimits limits = {}) : kind_(kind), limits_(limits) {}

  enum class State { head, body, done, failed };
  // Takes bytes up to the end of the message and returns how many; 0 once done or failed. Bytes after the end belong to the
  // next message: call reset() and feed them again.
  size_t feed(std::string_view bytes);
  // No more bytes will come: completes a response that is delimited by the end of the connection, fails an unfinished message.
  void end_of_input();
  void reset();

  State state() const { return state_; }
  bool started() const;                // any byte of this message has come
  // After `failed`: the status that a server answers (400, 413, 417, 431, 501, 505) and what is wrong.
  int error_status() const { return error_status_; }
  const std::string& error() const { return error_; }

  // From state `body` on. `target` as it was sent; `path` without the query.
  std::string_view method() const, target() const, path() const, query() const;
  int status() const;
  // The value of the first header of that name (any case), without outer spaces; empty when there is none.
  std::string_view header(std::string_view name) const;
  bool has_header(std::string_view name) const;
  bool keep_alive() const;             // the connection can carry another message after this one
  bool expects_continue() const;       // a request that waits for "100 Continue"
  const std::string& body() const { return body_; }
  std::string take_body() { return std::move(body_); }
  std::string_view trailer(std::string_view name) const;

 private:
  // the implementation's own
  Kind kind_;
  HttpLimits limits_;
  State state_ = State::head;
  int error_status_ = 0;
  std::string error_, body_;
};

std::string_view http_reason(int status);      // "OK", "Not Found", ...
// A chunk of a chunked body; the last one is "0\r\n" + trailers + "\r\n".
void append_chunk(std::string& out, std::string_view data);

// "Host: x" lines are appended by the caller; values must not hold CR or LF (checked).
void append_header(std::string& out, std::string_view name, std::string_view value);

}  // namespace tealight
