#include "src/host/http_server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/log.h"

namespace tealight {
namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kPipelinedBytes = 256 << 10;          // answers that wait: no further request is read
constexpr size_t kBodiesAtOnce = 16;                   // bodies of the largest size that may be half read together
constexpr int64_t kLingerUs = 3'000'000, kAcceptPauseUs = 100'000;

std::string random_id() {
  uint64_t bits[2] = {};
  if (::getentropy(bits, sizeof bits) != 0) bits[0] = uint64_t(monotonic_us());
  std::string id;
  for (uint64_t b : bits)
    for (int i = 0; i < 16; i++) id += "0123456789abcdef"[b >> (4 * i) & 15];
  return id;
}

// The client's own id where it is short and harmless.
std::string request_id_of(std::string_view given) {
  bool good = !given.empty() && given.size() <= 128;
  for (char c : given) good = good && ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || std::strchr("-_.:/+=", c));
  return good ? std::string(given) : random_id();
}

// Takes the same time wherever the texts differ.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned differ = a.size() != b.size();
  for (size_t i = 0; i < a.size(); i++) differ |= unsigned(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  return !differ && !b.empty();
}

std::atomic<int> signals_came{0};               // lock-free: a signal handler may use them
std::atomic<int> signal_fd{-1};

void on_signal(int signal) {
  if (++signals_came > 1) ::_exit(128 + signal);
  const int saved = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(signal_fd, &one, sizeof one);
  errno = saved;
}

}  // namespace

struct HttpServer::Source {
  int fd = -1;
  bool listens = true;
};

struct HttpServer::Connection : Source {
  // What it waits for; each has its time-out.
  enum class Phase { first, idle, head, body, busy, linger };

  explicit Connection(const HttpLimits& limits) : parser(HttpParser::Kind::request, limits) { listens = false; }
  bool unsent() const { return out_done < out.size(); }

  HttpParser parser;
  std::string in, out;                    // bytes not parsed yet; bytes to send, from out_done on
  size_t out_done = 0, body_bytes = 0;    // body_bytes: its part of HttpServer::body_bytes_
  std::shared_ptr<HttpReply> reply;       // of the request at hand
  size_t index = 0;                       // in connections_
  uint32_t events = 0;
  Phase phase = Phase::first;
  int64_t since_us = 0, sent_us = 0, deadline_us = INT64_MAX;
  bool admitted = false, continued = false, served = false;
  bool eof = false, close_after = false, drain_input = false, closed = false;
};

HttpServer::HttpServer(HttpService& service, HttpServerOptions options)
    : service_(service), options_(std::move(options)), mailbox_(std::make_shared<HttpMailbox>()), buffer_(new char[kReadBytes]) {
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) fail(Code::file, "cannot make an epoll descriptor: ", std::strerror(errno));
  epoll_event e = {};
  e.events = EPOLLIN;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, mailbox_->fd, &e);   // data.ptr: null
}

HttpServer::~HttpServer() {
  for (auto& c : connections_) {
    if (c->reply) c->reply->gone_ = true;
    ::close(c->fd);
  }
  for (auto& l : listeners_) ::close(l->fd);
  ::close(epoll_);
  mailbox_->close();
}

void HttpServer::add(int fd) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) fail(Code::file, "descriptor ", fd, " is no socket: ", std::strerror(errno));
  if (!listens) return add_connection(fd);
  auto source = std::make_unique<Source>();
  source->fd = fd;
  epoll_event e = {};
  e.events = EPOLLIN;
  e.data.ptr = source.get();
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &e) != 0) fail(Code::file, "cannot watch a socket: ", std::strerror(errno));
  listeners_.push_back(std::move(source));
}

void HttpServer::add_connection(int fd) {
  auto c = std::make_unique<Connection>(options_.limits);
  c->fd = fd;
  c->index = connections_.size();
  c->since_us = now_us_ = monotonic_us();
  epoll_event e = {};
  e.data.ptr = static_cast<Source*>(c.get());
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &e) != 0) {
    ::close(fd);
    return;
  }
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);   // fails on other sockets, which need none
  connections_.push_back(std::move(c));
  stats_.accepted++;
  update(*connections_.back());
}

HttpServer::Stats HttpServer::stats() const {
  Stats s = stats_;
  s.connections = connections_.size();
  return s;
}

void HttpServer::pause_accepting(bool pause) {
  accept_again_us_ = pause ? now_us_ + kAcceptPauseUs : 0;
  if (pause) next_check_us_ = std::min(next_check_us_, accept_again_us_);
  for (auto& l : listeners_) {
    epoll_event e = {};
    e.events = pause ? 0u : uint32_t(EPOLLIN);
    e.data.ptr = l.get();
    ::epoll_ctl(epoll_, EPOLL_CTL_MOD, l->fd, &e);
  }
}

// Makes room for a new connection: the one that has been idle longest, among those that wait for another request.
void HttpServer::close_idle_connection() {
  Connection* oldest = nullptr;
  for (auto& c : connections_)
    if (c->phase == Connection::Phase::idle && !c->unsent() && (!oldest || c->since_us < oldest->since_us)) oldest = c.get();
  if (oldest) close(*oldest);
}

void HttpServer::accept_from(Source& listener) {
  for (int i = 0; i < 64; i++) {
    const int fd = ::accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        close_idle_connection();
        pause_accepting(true);
      }
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;
    }
    if (connections_.size() >= options_.max_connections) close_idle_connection();
    if (connections_.size() < options_.max_connections) {
      add_connection(fd);
      continue;
    }
    static constexpr char kFull[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    ::send(fd, kFull, sizeof kFull - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    ::close(fd);
    stats_.refused++;
  }
}

int HttpServer::run() {
  ::signal(SIGPIPE, SIG_IGN);
  signals_came = 0;
  signal_fd = mailbox_->fd;
  struct sigaction action = {}, old_term, old_int;
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &action, &old_term);
  ::sigaction(SIGINT, &action, &old_int);
  while (!listeners_.empty() || !connections_.empty()) {
    now_us_ = monotonic_us();
    const int64_t next_us = std::min(next_check_us_, end_us_);
    const int timeout = next_us == INT64_MAX ? -1 : int(std::clamp<int64_t>((next_us - now_us_ + 999) / 1000, 0, 60'000));
    epoll_event events[64];
    const int n = ::epoll_wait(epoll_, events, 64, timeout);
    now_us_ = monotonic_us();
    for (int i = 0; i < n; i++) {
      auto* source = static_cast<Source*>(events[i].data.ptr);
      if (!source) on_mail();
      else if (source->listens) accept_from(*source);
      else if (auto& c = static_cast<Connection&>(*source); !c.closed) on_events(c, events[i].events);
    }
    closed_.clear();
    if (signals_came && !draining_) stop(0);
    if (now_us_ >= next_check_us_) check_deadlines();
    if (now_us_ >= end_us_) {
      log_line(LogLevel::warn, cat("the grace is over; ", connections_.size(), " connections are closed"));
      while (!connections_.empty()) lost(*connections_.back());
    }
  }
  closed_.clear();
  ::sigaction(SIGTERM, &old_term, nullptr);
  ::sigaction(SIGINT, &old_int, nullptr);
  return exit_code_;
}

void HttpServer::stop(int exit_code) {
  if (std::exchange(draining_, true)) return;
  exit_code_ = exit_code;
  end_us_ = monotonic_us() + options_.grace_us;
  for (auto& l : listeners_) ::close(l->fd);
  listeners_.clear();
  for (size_t i = connections_.size(); i-- > 0;) {
    Connection& c = *connections_[i];
    if (c.reply) c.reply->close_ = true;
    c.close_after = true;
    if (c.parser.started()) c.served = false;             // what has begun to come is read to its end
    if (!c.reply && !c.parser.started() && !c.unsent()) close(c);
  }
  service_.drain();
}

void HttpServer::on_mail() {
  uint64_t count;
  [[maybe_unused]] const ssize_t n = ::read(mailbox_->fd, &count, sizeof count);
  {
    const std::lock_guard lock(mailbox_->mutex);
    mail_.swap(mailbox_->replies);
  }
  if (mailbox_->called.exchange(false)) service_.woken();
  for (const auto& reply : mail_)
    if (auto* c = static_cast<Connection*>(reply->connection_)) {
      collect(*c);
      if (!c->closed) advance(*c);
    }
  mail_.clear();
}

void HttpServer::on_events(Connection& c, uint32_t events) {
  if (events & (EPOLLERR | EPOLLHUP)) return lost(c);
  if ((events & EPOLLRDHUP) && c.reply) return lost(c);
  if (events & (EPOLLIN | EPOLLRDHUP)) on_readable(c);
  if (!c.closed && (events & EPOLLOUT)) {
    flush(c);
    if (!c.closed) advance(c);
  }
}

void HttpServer::on_readable(Connection& c) {
  const ssize_t n = ::recv(c.fd, buffer_.get(), kReadBytes, 0);
  if (n < 0) {
    if (errno != EAGAIN && errno != EINTR) lost(c);
    return;
  }
  if (n == 0) {
    c.eof = c.close_after = true;
    return c.unsent() && !c.drain_input ? update(c) : close(c);
  }
  stats_.bytes_in += uint64_t(n);
  if (c.drain_input) return;
  c.in.append(buffer_.get(), size_t(n));
  advance(c);
}

// Goes on with what has been read: parses, answers, and reads the next request of the same connection.
void HttpServer::advance(Connection& c) {
  size_t used = 0;
  while (!c.reply && !c.closed && !c.drain_input && !(c.close_after && c.served) && used < c.in.size() && c.out.size() - c.out_done < kPipelinedBytes) {
    used += c.parser.feed(std::string_view(c.in).substr(used));
    const HttpParser::State state = c.parser.state();
    body_bytes_ += c.parser.body().size() - c.body_bytes;
    c.body_bytes = c.parser.body().size();
    if (state == HttpParser::State::failed) refuse(c, c.parser.error_status(), c.parser.error());
    else if (state == HttpParser::State::head) continue;
    else if (!admit(c)) break;
    else if (state == HttpParser::State::done) dispatch(c);
    else if (body_bytes_ > kBodiesAtOnce * options_.limits.body_bytes) refuse(c, 503, "too many large requests at once; try again later");
    else if (c.parser.expects_continue() && !std::exchange(c.continued, true) && c.parser.body().empty())
      c.out += "HTTP/1.1 100 Continue\r\n\r\n";
  }
  if (c.closed) return;
  c.in.erase(0, used);
  if (c.in.empty() && c.in.capacity() > 2 * kReadBytes) std::string().swap(c.in);
  flush(c);
}

// Once per request, before its body is read. False: it has been refused.
bool HttpServer::admit(Connection& c) {
  if (std::exchange(c.admitted, true) || options_.api_keys.empty()) return true;
  const HttpParser& p = c.parser;
  if (p.path() == "/health" || p.path() == "/ready" || p.method() == "OPTIONS") return true;
  std::string_view given = p.header("authorization");
  const bool bearer = given.size() > 7 && (given[0] | 32) == 'b' && given.substr(1, 6) == "earer ";
  bool known = false;
  for (const std::string& key : options_.api_keys) known |= same_secret(bearer ? given.substr(7) : std::string_view(), key);
  if (!known) refuse(c, 401, given.empty() ? "no API key given; send it as \"Authorization: Bearer KEY\"" : "the API key is wrong");
  return known;
}

std::shared_ptr<HttpReply> HttpServer::make_reply(const Connection& c) {
  const HttpParser& p = c.parser;
  auto reply = std::make_shared<HttpReply>();
  reply->mailbox_ = mailbox_;
  reply->max_unsent_ = options_.max_unsent_bytes;
  reply->begin_us_ = now_us_;
  reply->posted_ = true;                 // the server looks by itself after handle()
  reply->id_ = request_id_of(p.header("x-request-id"));
  reply->name_ = cat(p.method(), ' ', p.path());
  reply->head_only_ = p.method() == "HEAD";
  reply->old_ = p.http_1_0();
  reply->close_ = draining_ || reply->old_ || !p.keep_alive();
  if (!options_.cors.empty()) {
    append_header(reply->common_headers_, "Access-Control-Allow-Origin", options_.cors);
    append_header(reply->common_headers_, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
    if (options_.cors != "*") append_header(reply->common_headers_, "Vary", "Origin");
  }
  return reply;
}

void HttpServer::dispatch(Connection& c) {
  c.reply = make_reply(c);
  c.reply->connection_ = &c;
  const std::shared_ptr<HttpReply> reply = c.reply;
  const HttpParser& p = c.parser;
  if (p.method() == "OPTIONS") {
    std::string headers;
    append_header(headers, "Allow", "GET, HEAD, POST, OPTIONS");
    if (!options_.cors.empty()) {
      append_header(headers, "Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
      const std::string_view wanted = p.header("access-control-request-headers");
      append_header(headers, "Access-Control-Allow-Headers", wanted.empty() ? std::string_view("Authorization, Content-Type") : wanted);
      append_header(headers, "Access-Control-Max-Age", "86400");
    }
    reply->send(204, {}, {}, headers);
  } else {
    body_bytes_ -= std::exchange(c.body_bytes, 0);
    std::string body = c.parser.take_body();
    service_.handle({p.method(), p.path(), p.query(), &p, std::move(body)}, reply);
  }
  if (!c.closed) collect(c);
}

// Answers with an error that ends the connection: where the request ends is unknown, or its rest is not wanted.
void HttpServer::refuse(Connection& c, int status, std::string_view message) {
  if (c.parser.state() == HttpParser::State::failed || c.parser.state() == HttpParser::State::head) {
    c.reply = std::make_shared<HttpReply>();
    c.reply->mailbox_ = mailbox_;
    c.reply->posted_ = true;
    c.reply->begin_us_ = now_us_;
    c.reply->id_ = random_id();
    c.reply->name_ = "-";
  } else {
    c.reply = make_reply(c);
  }
  c.reply->connection_ = &c;
  c.reply->close_ = true;
  c.drain_input = true;
  const std::string_view type = status == 401 ? "authentication_error" : status >= 500 ? "server_error" : "invalid_request_error";
  const std::string_view code = status == 401 ? "invalid_api_key" : status == 413 ? "request_too_large" : "";
  const std::string_view headers = status == 401 ? "WWW-Authenticate: Bearer\r\n" : status == 503 ? "Retry-After: 1\r\n" : "";
  c.reply->send(status, "application/json", http_error_json(message, type, {}, code), headers);
  collect(c);
}

// Fetches what the reply has.
void HttpServer::collect(Connection& c) {
  HttpReply& r = *c.reply;
  bool ended, broken;
  {
    const std::lock_guard lock(r.mutex_);
    r.posted_ = false;
    if (c.out.empty()) c.out.swap(r.pending_);
    else c.out += r.pending_;
    r.pending_.clear();
    r.unsent_ = c.out.size() - c.out_done;
    ended = r.ended_;
    broken = r.broken_;
  }
  if (broken) return lost(c);
  if (ended) finish(c);
  if (!c.closed) flush(c);
}

void HttpServer::finish(Connection& c) {
  const std::shared_ptr<HttpReply> reply = std::move(c.reply);
  c.reply = nullptr;
  reply->connection_ = nullptr;
  log_access(*reply, 0);
  c.phase = Connection::Phase::busy;      // whatever comes now begins now
  c.served = true;
  c.admitted = c.continued = false;
  body_bytes_ -= std::exchange(c.body_bytes, 0);
  c.close_after = c.close_after || reply->close_;
  if (!c.drain_input) c.parser.reset();
}

void HttpServer::flush(Connection& c) {
  if (c.unsent() && c.sent_us == 0) c.sent_us = now_us_;
  while (c.unsent()) {
    const ssize_t n = ::send(c.fd, c.out.data() + c.out_done, c.out.size() - c.out_done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return lost(c);
    if (n < 0) break;
    c.out_done += size_t(n);
    c.sent_us = now_us_;
    stats_.bytes_out += uint64_t(n);
  }
  if (c.reply) c.reply->unsent_ = c.out.size() - c.out_done;
  if (!c.unsent()) {
    if (c.out.capacity() > kReadBytes) std::string().swap(c.out);
    c.out.clear();
    c.out_done = 0;
    c.sent_us = 0;
    if (c.close_after && !c.reply && (c.served || c.eof)) {
      // Bytes that are not read when the socket is closed would reset the connection and lose the answer.
      if (!c.drain_input || c.eof) return close(c);
      if (c.phase != Connection::Phase::linger) ::shutdown(c.fd, SHUT_WR);
    }
  } else if (c.out_done > (1 << 20)) {
    c.out.erase(0, c.out_done);
    c.out_done = 0;
  }
  update(c);
}

// The other side has gone, or does not do its part.
void HttpServer::lost(Connection& c) {
  if (c.reply) {
    const std::shared_ptr<HttpReply> reply = std::move(c.reply);
    c.reply = nullptr;
    reply->connection_ = nullptr;
    reply->gone_ = true;
    stats_.vanished++;
    log_access(*reply, 499);
    service_.gone(*reply);
  }
  close(c);
}

void HttpServer::close(Connection& c) {
  if (std::exchange(c.closed, true)) return;
  body_bytes_ -= std::exchange(c.body_bytes, 0);
  ::close(c.fd);
  const size_t at = c.index;
  closed_.push_back(std::move(connections_[at]));
  if (at + 1 < connections_.size()) {
    connections_[at] = std::move(connections_.back());
    connections_[at]->index = at;
  }
  connections_.pop_back();
}

// What is waited for now, and for how long.
void HttpServer::update(Connection& c) {
  using Phase = Connection::Phase;
  const bool lingers = c.drain_input && !c.reply && !c.unsent();
  const Phase phase = lingers                                     ? Phase::linger
                      : c.reply                                   ? Phase::busy
                      : c.parser.state() == HttpParser::State::body ? Phase::body
                      : c.parser.started()                        ? Phase::head
                      : c.served                                  ? Phase::idle
                                                                  : Phase::first;
  if (phase != c.phase) c.since_us = now_us_;
  c.phase = phase;
  int64_t limit_us = INT64_MAX;
  switch (phase) {
    case Phase::first:
    case Phase::head: limit_us = c.since_us + options_.head_us; break;
    case Phase::body: limit_us = c.since_us + options_.body_us; break;
    case Phase::idle: limit_us = c.since_us + options_.idle_us; break;
    case Phase::linger: limit_us = c.since_us + kLingerUs; break;
    case Phase::busy:
      if (c.reply->deadline_us > 0) limit_us = c.reply->deadline_us;
      break;
  }
  if (c.unsent()) limit_us = std::min(limit_us, c.sent_us + options_.write_us);
  c.deadline_us = limit_us;
  next_check_us_ = std::min(next_check_us_, limit_us);

  uint32_t events = 0;
  const bool full = c.out.size() - c.out_done >= kPipelinedBytes;
  if (!c.eof) events |= EPOLLRDHUP;
  if (!c.eof && ((!c.reply && !full && !(c.close_after && c.served)) || c.drain_input)) events |= EPOLLIN;
  if (c.unsent()) events |= EPOLLOUT;
  if (events == c.events) return;
  c.events = events;
  epoll_event e = {};
  e.events = events;
  e.data.ptr = static_cast<Source*>(&c);
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, c.fd, &e);
}

void HttpServer::check_deadlines() {
  next_check_us_ = INT64_MAX;
  if (accept_again_us_ && now_us_ >= accept_again_us_) pause_accepting(false);
  if (accept_again_us_) next_check_us_ = accept_again_us_;
  for (size_t i = connections_.size(); i-- > 0;) {
    Connection& c = *connections_[i];
    const bool stalled = c.unsent() && now_us_ >= c.sent_us + options_.write_us;
    if (now_us_ < c.deadline_us) next_check_us_ = std::min(next_check_us_, c.deadline_us);
    else if (stalled) lost(c);
    else if (c.phase == Connection::Phase::head || c.phase == Connection::Phase::body) refuse(c, 408, "the request did not come in time");
    else if (c.phase != Connection::Phase::busy) close(c);
    else {
      c.reply->deadline_us = 0;
      service_.expired(*c.reply);
      update(c);
    }
  }
  closed_.clear();
}

// status: 0 for the answer's own.
void HttpServer::log_access(HttpReply& reply, int status) {
  uint64_t bytes;
  {
    const std::lock_guard lock(reply.mutex_);
    if (status == 0) status = reply.status_;
    bytes = reply.bytes_;
  }
  stats_.requests++;
  if (status >= 100 && status < 600) stats_.by_class[status / 100]++;
  if (options_.access_log == HttpServerOptions::AccessLog::off) return;
  const double ms = double(now_us_ - reply.begin_us_) / 1000;
  const std::string_view name = reply.name_;
  if (options_.access_log == HttpServerOptions::AccessLog::text) {
    const std::string safe = quoted(name, 200);
    return log_line(LogLevel::info, cat(std::string_view(safe).substr(1, safe.size() - 2), ' ', status, ' ', bytes, " bytes ", ms, " ms ", reply.id_));
  }
  std::string line;
  JsonWriter(line).begin_object().field("level", "INFO").field("request", name.substr(0, 200)).field("status", status)
      .field("bytes", bytes).field("ms", ms).field("request_id", reply.id_).end_object();
  line += '\n';
  [[maybe_unused]] const ssize_t n = ::write(2, line.data(), line.size());
}

}  // namespace tealight
