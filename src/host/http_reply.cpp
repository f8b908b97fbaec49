#include "src/host/http_reply.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/host/http.h"

namespace tealight {
namespace {

// A number as text with a leading zero.
void append_two(std::string& out, int n) {
  out += char('0' + n / 10);
  out += char('0' + n % 10);
}

// RFC 9110, 5.6.7. The calendar: Howard Hinnant, "chrono-compatible low-level date algorithms", civil_from_days.
void append_date(std::string& out) {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  const int64_t days = t.tv_sec / 86400, second = t.tv_sec % 86400;
  const int64_t z = days + 719468, era = z / 146097, doe = z % 146097;
  const int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365, doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
  const int64_t mp = (5 * doy + 2) / 153, day = doy - (153 * mp + 2) / 5 + 1, month = mp < 10 ? mp + 3 : mp - 9;
  const auto three = [](const char* names, int64_t i) { return std::string_view(names + 3 * i, 3); };
  out += three("ThuFriSatSunMonTueWed", days % 7);
  out += ", ";
  append_two(out, int(day));
  out += cat(' ', three("JanFebMarAprMayJunJulAugSepOctNovDec", month - 1), ' ', yoe + era * 400 + (month <= 2), ' ');
  append_two(out, int(second / 3600));
  out += ':';
  append_two(out, int(second / 60 % 60));
  out += ':';
  append_two(out, int(second % 60));
  out += " GMT";
}

}  // namespace

std::string http_error_json(std::string_view message, std::string_view type, std::string_view param, std::string_view code) {
  std::string out;
  JsonWriter w(out);
  const auto field = [&](std::string_view name, std::string_view value) {
    w.key(name);
    if (value.empty()) w.null();
    else w.value(value);
  };
  w.begin_object().key("error").begin_object().field("message", message).field("type", type);
  field("param", param);
  field("code", code);
  w.end_object().end_object();
  return out;
}

HttpMailbox::HttpMailbox() : fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd < 0) fail(Code::file, "cannot make an eventfd: ", std::strerror(errno));
}

HttpMailbox::~HttpMailbox() { ::close(fd); }

void HttpMailbox::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(fd, &one, sizeof one);
}

void HttpMailbox::call() {
  called = true;
  wake();
}

void HttpMailbox::post(std::shared_ptr<HttpReply> reply) {
  {
    const std::lock_guard lock(mutex);
    if (closed) return;
    replies.push_back(std::move(reply));
  }
  wake();
}

void HttpMailbox::close() {
  const std::lock_guard lock(mutex);
  closed = true;
  replies.clear();                     // they hold the mailbox
}

// Under the mutex.
void HttpReply::append_head(int status, std::string_view type, std::string_view headers) {
  status_ = status;
  begun_ = true;
  pending_ += cat("HTTP/1.1 ", status, ' ', http_reason(status), "\r\nDate: ");
  append_date(pending_);
  pending_ += "\r\n";
  if (!type.empty()) append_header(pending_, "Content-Type", type);
  append_header(pending_, "X-Request-Id", id_);
  pending_ += common_headers_;
  pending_ += headers;
  if (close_) pending_ += "Connection: close\r\n";
}

// The server's thread learns of news once until it has fetched it.
void HttpReply::notify() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(posted_, true)) return;
  }
  mailbox_->post(shared_from_this());
}

void HttpReply::send(int status, std::string_view type, std::string_view body, std::string_view headers) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || begun_) return;
    append_head(status, type, headers);
    if (status != 204) pending_ += cat("Content-Length: ", body.size(), "\r\n");
    pending_ += "\r\n";
    if (!head_only_) pending_ += body;
    bytes_ = body.size();
    ended_ = true;
  }
  notify();
}

bool HttpReply::begin(int status, std::string_view type, std::string_view headers) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || begun_) return false;
    append_head(status, type, headers);
    pending_ += old_ ? "\r\n" : "Transfer-Encoding: chunked\r\n\r\n";
  }
  notify();
  return !gone();
}

bool HttpReply::write(std::string_view piece) {
  if (piece.empty() || gone()) return !gone();
  bool fits;
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || broken_) return false;
    fits = pending_.size() + unsent_.load(std::memory_order_relaxed) + piece.size() <= max_unsent_;
    broken_ = !fits;
    bytes_ += piece.size();
    if (!fits) pending_.clear();
    else if (head_only_) return true;
    else if (old_) pending_ += piece;
    else append_chunk(pending_, piece);
  }
  notify();
  return fits;
}

void HttpReply::end() {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    if (!old_ && !head_only_) pending_ += "0\r\n\r\n";
    ended_ = true;
  }
  notify();
}

void HttpReply::abort() {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    broken_ = true;
  }
  notify();
}

}  // namespace tealight
