// An HTTP/1.1 server on one thread and sockets that never block. A service gets whole requests on that thread and answers
// from any thread, at once or piece by piece.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/host/http.h"
#include "src/host/http_reply.h"

namespace tealight {

struct HttpServerOptions {
  HttpLimits limits;
  size_t max_connections = 1024;
  size_t max_unsent_bytes = 4 << 20;    // of a streamed answer that its reader leaves lying; then the connection ends
  int64_t head_us = 10'000'000;         // from a request's first byte to the end of its head; also for the first byte of all
  int64_t body_us = 60'000'000;         // from there to the end of its body
  int64_t idle_us = 60'000'000;         // between two requests
  int64_t write_us = 30'000'000;        // without any byte taken by the reader
  int64_t grace_us = 10'000'000;        // after the signal to end, for what runs
  std::string cors;                     // the origin that browsers may call from, "*" for all, empty for none
  std::vector<std::string> api_keys;    // empty: everybody may call
  enum class AccessLog { off, text, json } access_log = AccessLog::text;
};

struct HttpRequest {
  std::string_view method, path, query;   // valid while the service's handle() runs
  const HttpParser* head;                 // the same
  std::string body;
};

// All functions run on the server's thread.
class HttpService {
 public:
  virtual ~HttpService() = default;
  virtual void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) = 0;
  virtual void gone(HttpReply&) {}             // its reader has gone before the end
  virtual void expired(HttpReply&) {}          // its deadline has come
  virtual void woken() {}                      // somebody called HttpMailbox::call()
  virtual void drain() {}                      // the server ends: what has come is finished, nothing more will come
};

class HttpServer {
 public:
  struct Stats {
    uint64_t connections = 0, accepted = 0, refused = 0;                   // now; in all; for want of room
    uint64_t requests = 0, by_class[6] = {}, vanished = 0;                 // by the first digit of the status
    uint64_t bytes_in = 0, bytes_out = 0;
  };

  HttpServer(HttpService& service, HttpServerOptions options);
  ~HttpServer();                                // closes everything; replies may outlive it
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Takes over a listening socket, or a connection that somebody else accepted.
  void add(int fd);
  // Serves until SIGTERM or SIGINT (a second one ends the process), stop(), or until nothing is left to listen to.
  // Returns the exit code.
  int run();
  void wake() { mailbox_->call(); }             // any thread: the service's woken() is called soon
  std::shared_ptr<HttpMailbox> mailbox() const { return mailbox_; }   // for threads that may outlive the server
  void stop(int exit_code);                     // the server's thread: finishes what runs, within the grace
  bool draining() const { return draining_; }
  Stats stats() const;                          // the server's thread

 private:
  struct Source;
  struct Connection;
  void add_connection(int fd);
  void accept_from(Source& listener);
  void close_idle_connection();
  void on_events(Connection& c, uint32_t events);
  void on_readable(Connection& c);
  void on_mail();
  void advance(Connection& c);
  bool admit(Connection& c);
  void dispatch(Connection& c);
  std::shared_ptr<HttpReply> make_reply(const Connection& c);
  void refuse(Connection& c, int status, std::string_view message);
  void collect(Connection& c);
  void finish(Connection& c);
  void flush(Connection& c);
  void lost(Connection& c);
  void close(Connection& c);
  void update(Connection& c);
  void check_deadlines();
  void pause_accepting(bool pause);
  void log_access(HttpReply& reply, int status);

  HttpService& service_;
  HttpServerOptions options_;
  std::shared_ptr<HttpMailbox> mailbox_;
  int epoll_ = -1;
  std::vector<std::unique_ptr<Source>> listeners_;
  std::vector<std::unique_ptr<Connection>> connections_, closed_;   // closed_: until the events at hand are done
  std::vector<std::shared_ptr<HttpReply>> mail_;                    // of the moment
  std::unique_ptr<char[]> buffer_;
  size_t body_bytes_ = 0;                       // of bodies that are being read
  int64_t now_us_ = 0, next_check_us_ = INT64_MAX, accept_again_us_ = 0, end_us_ = INT64_MAX;
  bool draining_ = false;
  int exit_code_ = 0;
  Stats stats_;
};

}  // namespace tealight
