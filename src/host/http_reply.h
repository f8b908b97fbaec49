// The answer to one HTTP request, written on any thread and sent by the server's.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tealight {

// What the threads of services leave for the server's thread.
class HttpReply;
struct HttpMailbox {
  HttpMailbox();
  ~HttpMailbox();
  void call();                                 // the service's woken() is called soon; any thread
  void wake();
  void post(std::shared_ptr<HttpReply> reply);
  void close();                                // nobody fetches any more: what comes is dropped

  const int fd;                                // readable when something has come
  std::mutex mutex;
  std::vector<std::shared_ptr<HttpReply>> replies;
  bool closed = false;
  std::atomic<bool> called{false};
};

// The answer to one request. All functions but those of the server may be called on any thread; what is written after the
// end, or when nobody reads any more, is dropped.
class HttpReply : public std::enable_shared_from_this<HttpReply> {
 public:
  // A whole answer. `headers`: further lines, each with its line end.
  void send(int status, std::string_view type, std::string_view body, std::string_view headers = {});
  // An answer in pieces. False: nobody reads.
  bool begin(int status, std::string_view type, std::string_view headers = {});
  bool write(std::string_view piece);
  void end();
  void abort();                           // cuts the connection: the reader sees that the answer is not whole
  bool begun() const { return begun_.load(std::memory_order_relaxed); }
  bool gone() const { return gone_.load(std::memory_order_relaxed); }
  const std::string& request_id() const { return id_; }

  uint64_t job = 0;                       // the service's own; the server's thread only
  int64_t deadline_us = 0;                // CLOCK_MONOTONIC when the service's expired() is called; 0: never. Set in handle()

 private:
  friend class HttpServer;
  void append_head(int status, std::string_view type, std::string_view headers);
  void notify();

  std::shared_ptr<HttpMailbox> mailbox_;
  void* connection_ = nullptr;                 // the server's thread only
  std::string id_, common_headers_, name_;     // name_: method and path, for the log
  size_t max_unsent_ = 0;
  int64_t begin_us_ = 0;
  bool head_only_ = false, old_ = false;       // HEAD; HTTP/1.0
  std::atomic<bool> close_{false}, gone_{false}, begun_{false};
  std::atomic<size_t> unsent_{0};              // bytes that the connection holds
  std::mutex mutex_;                           // guards the rest
  std::string pending_;
  bool posted_ = false, ended_ = false, broken_ = false;
  int status_ = 0;
  uint64_t bytes_ = 0;                         // of the body
};

// An error object in OpenAI's form. Empty fields are null.
std::string http_error_json(std::string_view message, std::string_view type, std::string_view param, std::string_view code);

}  // namespace tealight
