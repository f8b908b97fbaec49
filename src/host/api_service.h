// OpenAI's API over HTTP: one model, many generations at once.
#pragma once
#include <pthread.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/host/http_server.h"
#include "src/host/openai.h"
#include "src/host/sandbox.h"
#include "src/task/scheduler.h"

namespace tealight {

struct ApiOptions {
  SchedulerOptions scheduler;
  std::vector<std::string> aliases;     // further names of the model; "*": every name is taken
  int64_t timeout_us = 0;               // a generation ends then with what it has ("length"); 0: none
  SandboxMode sandbox = SandboxMode::off;   // entered when the model is loaded
  bool any_path = false;                // a POST to an unknown path is a request (function hosts name the paths)
  bool fn = false;                      // Fn's contract: the status goes into Fn-Http-Status
};

// Requests that come before the model is there wait for it.
class ApiService : public HttpService {
 public:
  using Load = std::function<std::unique_ptr<Lm>()>;
  ApiService(ApiOptions options, Load load);
  ~ApiService() override;               // cancels what runs
  // Loads the model on a thread of its own. When that fails the server is stopped with exit code 1.
  void start(HttpServer& server);

  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override;
  void gone(HttpReply& reply) override;
  void expired(HttpReply& reply) override { gone(reply); }
  void woken() override;
  void drain() override;

 private:
  struct Held {
    ApiKind kind;
    std::string body;
    std::shared_ptr<HttpReply> reply;
  };
  void get(std::string_view path, HttpReply& reply) const;
  void submit(ApiKind kind, std::string_view body, const std::shared_ptr<HttpReply>& reply);
  void begin();
  void check_model(Json request) const;
  void refuse(HttpReply& reply, const ApiError& error) const;
  void refuse_for_now(HttpReply& reply) const;
  bool ready() const;
  std::string metrics() const;
  std::string model_json() const;

  ApiOptions options_;
  Load load_;
  HttpServer* server_ = nullptr;
  const int64_t started_;               // Unix seconds
  const int64_t started_us_;
  pthread_t loader_ = {};
  bool loading_ = false;
  std::unique_ptr<Lm> lm_;              // written by the loader, used from woken() on
  std::string load_error_;
  std::atomic<bool> loaded_{false};
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<Held> held_;
  uint64_t next_id_ = 0, id_base_ = 0;
};

}  // namespace tealight
