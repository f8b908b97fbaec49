// A person's function over HTTP: a POST to any path is a call, one at a time on a thread of its own.
#pragma once
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "src/host/handler.h"
#include "src/host/http_server.h"

namespace tealight {

class HandlerService : public HttpService {
 public:
  using Load = std::function<std::unique_ptr<Handler>()>;
  // queue: calls that wait; beyond them there is 503.
  HandlerService(Load load, size_t queue) : load_(std::move(load)), max_waiting_(queue) {}
  ~HandlerService() override;            // ends after the call under way
  // Makes the handler on the thread. When that fails the server is stopped with exit code 1.
  void start(HttpServer& server);

  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override;
  void woken() override;

 private:
  struct Work {
    std::string method, path, query, content_type, accept, body;
    std::shared_ptr<HttpReply> reply;
  };
  void work();
  void call(Handler& handler, const Work& work);

  Load load_;
  size_t max_waiting_;
  HttpServer* server_ = nullptr;
  std::shared_ptr<HttpMailbox> mailbox_;   // the thread may end after the server
  pthread_t thread_ = {};
  bool started_ = false;
  std::atomic<bool> ready_{false}, failed_{false};
  std::mutex mutex_;                     // guards the rest
  std::condition_variable come_;
  std::deque<Work> waiting_;
  bool end_ = false;
};

}  // namespace tealight
