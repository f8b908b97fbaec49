#include "src/host/cgi.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/host/http.h"
#include "src/host/openai.h"
#include "src/host/stdio.h"

namespace tealight {
namespace {

constexpr size_t kMaxBody = HttpLimits().body_bytes;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::string_view(value) : std::string_view();
}

// Up to `bytes` of the input, or less where it ends before. Errors: Code::request for more than kMaxBody.
std::string read_body(int in, size_t bytes) {
  std::string body;
  while (body.size() < bytes) {
    const size_t at = body.size(), want = std::min<size_t>(bytes - at, 64 << 10);
    body.resize(at + want);
    const ssize_t n = ::read(in, body.data() + at, want);
    body.resize(at + (n > 0 ? size_t(n) : 0));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    if (body.size() > kMaxBody) fail(Code::request, "the body is longer than ", kMaxBody, " bytes");
  }
  return body;
}

Answer error_answer(const Error& e) {
  const ApiError error = api_error(e);
  return {error.status, "application/json", error.json()};
}

// Runs the call; whatever goes wrong is an answer.
template <class Make>
Answer answer_of(Handler& handler, const Make& make) {
  try {
    return handler.handle(make());
  } catch (const Error& e) {
    return error_answer(e);
  } catch (const std::exception& e) {
    return error_answer(Error(Code::internal, e.what()));
  }
}

size_t content_length() {
  const std::string_view text = variable("CONTENT_LENGTH");
  size_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) return 0;
  return n;
}

}  // namespace

int serve_cgi(Handler& handler, int in, int out) {
  ::signal(SIGPIPE, SIG_IGN);
  const std::string_view method = variable("REQUEST_METHOD");
  bool begun = false, open = true;
  const auto head = [&](int status, std::string_view type) {
    begun = true;
    open = write_all(out, cat("Status: ", status, ' ', http_reason(status), "\r\nContent-Type: ", type, "\r\n\r\n"));
    return open;
  };
  std::string body;
  const Answer answer = answer_of(handler, [&] {
    body = read_body(in, content_length());
    Call call;
    call.body = body;
    call.content_type = variable("CONTENT_TYPE");
    call.method = method;
    if (const std::string_view path = variable("PATH_INFO"); !path.empty()) call.path = path;
    call.query = variable("QUERY_STRING");
    call.request_id = variable("HTTP_X_REQUEST_ID");
    call.write = [&](std::string_view piece) {
      if (!begun) head(200, "text/event-stream");
      return open = open && write_all(out, piece);
    };
    return call;
  });
  if (!begun) head(answer.status, answer.content_type);
  else if (answer.status >= 400) log_line(answer.body);
  return open && write_all(out, answer.body) ? 0 : 1;
}

int serve_pipe(Handler& handler, int in, int out) {
  ::signal(SIGPIPE, SIG_IGN);
  std::string body;
  const Answer answer = answer_of(handler, [&] {
    body = read_body(in, SIZE_MAX);
    Call call;
    call.body = body;
    call.content_type = variable("Http_Content_Type");
    call.query = variable("Http_Query");
    return call;
  });
  return write_all(out, answer.body) && answer.status < 400 ? 0 : 1;
}

}  // namespace tealight
