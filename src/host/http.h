// HTTP/1.1 messages (RFC 9112) as bytes come in: one parser for the requests of clients and the responses of a server, and
// the few lines that write both. Nothing here touches a socket.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tealight {

struct HttpLimits {
  size_t head_bytes = 64 << 10;        // start line and headers, and trailers
  size_t headers = 200;
  size_t body_bytes = 16 << 20;
};

// Parses one message after the other. Strict where leniency lets two readers disagree about where a message ends: both
// Content-Length and Transfer-Encoding, differing lengths, bare CR or LF, spaces before a colon, folded lines are errors.
// Informational responses (1xx) are skipped. Memory: the head and the body within the limits, nothing that is only announced.
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

  // From state `body` on; views hold until the next feed(). `target` as it was sent; `path` without the query, and without
  // scheme and host where the target has them.
  std::string_view method() const, target() const, path() const, query() const;
  int status() const;
  // The value of the first header of that name (any case), without outer spaces; empty when there is none.
  std::string_view header(std::string_view name) const;
  bool has_header(std::string_view name) const;
  bool keep_alive() const;             // the connection can carry another message after this one
  bool http_1_0() const { return minor_0_; }
  bool expects_continue() const;       // a request that waits for "100 Continue"
  const std::string& body() const { return body_; }
  std::string take_body() { return std::move(body_); }
  std::string_view trailer(std::string_view name) const;

 private:
  // What the next bytes are.
  enum class Part { start_line, field, fixed_body, chunk_size, chunk_data, chunk_end, trailer, rest };
  struct Span {
    uint32_t begin = 0, end = 0;       // in head_
  };
  struct Field {
    Span name, value;
  };
  std::string_view text(Span s) const { return std::string_view(head_).substr(s.begin, s.end - s.begin); }
  Span span(std::string_view within_head) const;
  const Field* find(std::string_view name, size_t begin, size_t end) const;
  void refuse(int status, std::string_view what);
  void finish();
  size_t feed_line(std::string_view bytes);
  size_t feed_data(std::string_view bytes);
  void take_line(std::string_view line);
  void take_request_line(std::string_view line);
  void take_status_line(std::string_view line);
  void take_version(std::string_view version);
  void take_field(std::string_view line);
  void take_chunk_size(std::string_view line);
  bool check_fields();                 // false: refused
  void end_head();
  void begin_message();

  Kind kind_;
  HttpLimits limits_;
  State state_ = State::head;
  Part part_ = Part::start_line;
  int error_status_ = 0;
  std::string error_, body_;
  std::string head_;                   // the lines so far with their ends; the line under way begins at line_begin_
  size_t line_begin_ = 0;
  std::vector<Field> fields_;          // n_headers_ headers, then trailers
  size_t n_headers_ = 0;
  Span method_, target_, path_, query_;
  int status_ = 0, interim_ = 0;
  bool minor_0_ = false, chunked_ = false, has_length_ = false, close_ = false, keep_ = false, continue_ = false;
  uint64_t left_ = 0;                  // bytes of the body or of its chunk that are still to come
};

std::string_view http_reason(int status);      // "OK", "Not Found", ...
// A chunk of a chunked body; the last one is "0\r\n" + trailers + "\r\n".
void append_chunk(std::string& out, std::string_view data);

// "Host: x" lines are appended by the caller; values must not hold CR or LF (checked).
void append_header(std::string& out, std::string_view name, std::string_view value);

}  // namespace tealight
