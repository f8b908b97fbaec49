#include "src/host/handler_service.h"

#include "src/base/log.h"
#include "src/host/openai.h"

namespace tealight {
namespace {

constexpr std::string_view kJson = "application/json";
constexpr size_t kStackBytes = 8 << 20;

// What a stream is: the type that the caller asks for, where it is a single one.
std::string_view stream_type(std::string_view accept) {
  const bool single = !accept.empty() && accept.find_first_of(",*;") == accept.npos;
  return single ? accept : std::string_view("text/event-stream");
}

}  // namespace

HandlerService::~HandlerService() {
  if (!started_) return;
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  come_.notify_all();
  pthread_join(thread_, nullptr);
}

void HandlerService::start(HttpServer& server) {
  server_ = &server;
  mailbox_ = server.mailbox();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  const int error = pthread_create(&thread_, &attributes, [](void* p) -> void* {
    static_cast<HandlerService*>(p)->work();
    return nullptr;
  }, this);
  pthread_attr_destroy(&attributes);
  if (error) fail(Code::memory, "cannot start a thread for the function");
  started_ = true;
}

void HandlerService::work() {
  std::unique_ptr<Handler> handler;
  try {
    handler = load_();
    ready_ = true;
  } catch (const std::exception& e) {
    log_line(e.what());
    failed_ = true;
    mailbox_->call();
  }
  while (true) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      come_.wait(lock, [this] { return end_ || !waiting_.empty(); });
      if (end_) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    if (handler && !work.reply->gone()) call(*handler, work);
    else work.reply->send(500, kJson, http_error_json("the function could not be loaded", "server_error", "", ""));
  }
}

void HandlerService::call(Handler& handler, const Work& work) {
  HttpReply& reply = *work.reply;
  Call c;
  c.body = work.body;
  c.content_type = work.content_type;
  c.method = work.method;
  c.path = work.path;
  c.query = work.query;
  c.request_id = reply.request_id();
  c.write = [&](std::string_view piece) {
    if (!reply.begun()) reply.begin(200, stream_type(work.accept), "Cache-Control: no-cache\r\n");
    return reply.write(piece);
  };
  c.gone = [&] { return reply.gone(); };
  ApiError error;
  try {
    const Answer answer = handler.handle(c);
    if (!reply.begun()) return reply.send(answer.status, answer.content_type, answer.body);
    reply.write(answer.body);
    return reply.end();
  } catch (const Error& e) {
    error = api_error(e);
  } catch (const std::exception& e) {
    error.message = e.what();
  }
  log_line(cat("the function failed: ", error.message));
  if (reply.begun()) reply.abort();
  else reply.send(error.status, kJson, error.json());
}

void HandlerService::woken() {
  if (failed_) server_->stop(1);
}

void HandlerService::handle(HttpRequest q, std::shared_ptr<HttpReply> reply) {
  const bool reads = q.method == "GET" || q.method == "HEAD";
  if (reads && (q.path == "/health" || q.path == "/"))
    return reply->send(200, kJson, "{\"status\":\"ok\"}");
  if (reads && q.path == "/ready")
    return reply->send(ready_ ? 200 : 503, kJson, ready_ ? "{\"status\":\"ready\"}" : "{\"status\":\"not ready\"}");
  if (q.method != "POST")
    return reply->send(405, kJson, http_error_json("a call is a POST", "invalid_request_error", "", "method_not_allowed"), "Allow: POST, OPTIONS\r\n");
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() < max_waiting_) {
      waiting_.push_back({std::string(q.method), std::string(q.path), std::string(q.query), std::string(q.head->header("content-type")),
                          std::string(q.head->header("accept")), std::move(q.body), std::move(reply)});
      come_.notify_one();
      return;
    }
  }
  reply->send(503, kJson, http_error_json("too many calls wait; try again later", "server_error", "", "queue_full"), "Retry-After: 1\r\n");
}

}  // namespace tealight
