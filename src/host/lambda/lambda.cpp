#include "src/host/lambda/lambda.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/mapping.h"
#include "src/host/lambda/client.h"
#include "src/host/lambda/events.h"
#include "src/host/lambda/stream.h"

namespace tealight::lambda {
namespace {

constexpr std::string_view kRoot = "/2018-06-01/runtime";
constexpr std::string_view kNext = "/2018-06-01/runtime/invocation/next";
constexpr size_t kMaxResponse = 6 << 20;          // what the platform takes from a buffered answer
constexpr int64_t kMarginUs = 80'000;             // between our answer and the platform's deadline: sending it, and clocks
constexpr int kMaxThreads = 256;
constexpr size_t kStackBytes = 2 << 20;           // virtual; musl's default is 128 KiB

std::string_view environment(const char* name) {
  const char* value = ::getenv(name);
  return value ? value : std::string_view();
}

// ---- SIGTERM: the process ends at once, but not inside a buffered answer; a second signal ends it there, too

std::atomic<int> g_posting{0};
std::atomic<bool> g_ending{false};

void on_sigterm(int) {
  if (g_ending.exchange(true) || g_posting == 0) ::_exit(0);
}

struct Posting {
  Posting() { g_posting++; }
  ~Posting() {
    if (--g_posting == 0 && g_ending) ::_exit(0);
  }
  Posting(const Posting&) = delete;
};

void handle_signals() {
  struct sigaction action {};
  action.sa_handler = on_sigterm;
  ::sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, nullptr);         // standard error may be a closed pipe
}

// ---- one connection's loop

struct Host {
  ApiAddress address;
  std::string_view agent;
  Handler* handler = nullptr;
  std::mutex handling;                            // a handler takes one call at a time
  std::mutex gate;                                // held until the workers may call
  bool broken = false;                            // the handler has nothing but one error for all calls
  bool streaming = false, concurrent = false;
};

// Runs f and hands what it throws to `failed` as an Error.
template <class F, class G>
void guarded(F&& f, G&& failed) {
  try {
    f();
  } catch (const Error& e) {
    failed(e);
  } catch (const std::bad_alloc&) {
    failed(Error(Code::memory, "not enough memory"));
  } catch (const std::exception& e) {
    failed(Error(Code::internal, e.what()));
  }
}

class Worker {
 public:
  explicit Worker(Host& host) : host_(host), api_(host.address, host.agent) {}
  // Asks for the first invocation without waiting for it.
  void ask() { asked_ = api_.send("GET", kNext, {}, {}); }
  // Returns when the API cannot be used any more.
  void run() {
    while (next()) {
      log_request(id_);
      invoke();
      log_request({});
      if (fatal_ || host_.broken) return;
    }
  }

 private:
  bool next();
  bool take_invocation();
  void take_deadline();
  void invoke();
  void invoke_plain();
  void invoke_http(const Event& event);
  void invoke_batch(const Event& event);
  void allow_stream(Call& call, std::string_view content_type, std::string prelude);
  Answer handle(Call& call);
  void post_response(std::string_view content_type, std::string_view body);
  void post_error(std::string_view type, std::string_view message);
  void post(std::string_view what, std::string& headers, std::string_view body);
  void end_stream(const Error* error);

  Host& host_;
  Connection api_;
  ResponseStream stream_{api_};
  bool asked_ = false, fatal_ = false;
  std::string id_, invocation_id_, body_;
  int64_t deadline_us_ = 0, call_deadline_us_ = 0;   // the platform's, and the one for the handler; 0: none
};

void pause_ms(int64_t ms) {
  timespec t{time_t(ms / 1000), long(ms % 1000 * 1000000)};
  while (::nanosleep(&t, &t) != 0 && errno == EINTR) {
  }
}

// The next invocation. A kept connection that is gone (a thawed sandbox) is replaced at once, other failures wait longer each
// time; what cannot get better ends the loop.
bool Worker::next() {
  int64_t wait_ms = 100;
  for (int failures = 0; failures < 6; failures++) {
    std::string why;
    if (!(std::exchange(asked_, false) ? api_.receive() : api_.call("GET", kNext))) {
      why = api_.error();
      if (failures == 0 && api_.reused()) continue;
    } else {
      const int status = api_.response().status();
      if (status == 200 && take_invocation()) return true;
      why = status == 200 ? "an invocation without a usable request id" : cat("status ", status);
      if (status == 403 || status == 500) failures = 6;
    }
    log_line(failures < 5 ? LogLevel::warn : LogLevel::fatal, cat("next invocation: ", why));
    if (failures < 5) pause_ms(wait_ms);
    wait_ms *= 2;
  }
  return false;
}

// What the response says about the invocation; false when it cannot be answered.
bool Worker::take_invocation() {
  const HttpParser& r = api_.response();
  id_ = r.header("lambda-runtime-aws-request-id");
  const bool usable = !id_.empty() && std::all_of(id_.begin(), id_.end(), [](char c) {
    return c == '-' || c == '_' || c == '.' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
  });
  if (!usable) return false;
  invocation_id_ = r.header("lambda-runtime-invocation-id");
  take_deadline();
  if (!host_.concurrent) {
    const std::string trace(r.header("lambda-runtime-trace-id"));
    if (trace.empty()) ::unsetenv("_X_AMZN_TRACE_ID");
    else ::setenv("_X_AMZN_TRACE_ID", trace.c_str(), 1);
  }
  body_ = api_.take_body();
  return true;
}

// Unix milliseconds become a time of the monotonic clock; what is no time in this century is no deadline.
void Worker::take_deadline() {
  int64_t ms = 0;
  for (char c : api_.response().header("lambda-runtime-deadline-ms")) {
    const bool digit = c >= '0' && c <= '9' && ms < 100'000'000'000'000;
    ms = digit ? ms * 10 + (c - '0') : INT64_MIN;
    if (!digit) break;
  }
  deadline_us_ = call_deadline_us_ = 0;
  if (ms < 1'000'000'000'000 || ms >= 10'000'000'000'000) return;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const int64_t left_us = ms * 1000 - (int64_t(now.tv_sec) * 1000000 + now.tv_nsec / 1000);
  deadline_us_ = monotonic_us() + left_us;
  call_deadline_us_ = deadline_us_ - std::clamp<int64_t>(left_us / 4, 0, kMarginUs);
}

Answer Worker::handle(Call& call) {
  call.request_id = id_;
  call.deadline_us = call_deadline_us_;
  std::lock_guard one(host_.handling);
  return host_.handler->handle(call);
}

void Worker::invoke() {
  JsonDoc doc;
  bool parsed = false;
  guarded([&] { doc = JsonDoc::parse(body_, "event"), parsed = true; },
          [&](const Error& e) { post_error(e.code == Code::memory ? error_type(e.code) : "Runtime.InvalidEvent", e.message); });
  if (!parsed) return;
  guarded(
      [&] {
        const Event event = read_event(doc.root());
        switch (event.source) {
          case Event::Source::plain:
            doc = {};
            return invoke_plain();
          case Event::Source::sqs: return invoke_batch(event);
          case Event::Source::warm_up: return post_response("application/json", "{\"status\":\"warm\"}");
          default: return invoke_http(event);
        }
      },
      [&](const Error& e) {
        if (stream_.begun()) end_stream(&e);
        else post_error(error_type(e.code), e.message);
      });
}

void Worker::allow_stream(Call& call, std::string_view content_type, std::string prelude) {
  stream_.prepare(id_, invocation_id_, content_type, std::move(prelude), deadline_us_);
  call.write = [this](std::string_view piece) { return stream_.write(piece); };
  call.gone = [this] { return stream_.gone(); };
}

void Worker::invoke_plain() {
  Call call;
  call.body = body_;
  call.content_type = "application/json";
  if (host_.streaming) allow_stream(call, "text/event-stream", {});
  const Answer answer = handle(call);
  if (stream_.begun()) {
    stream_.write(answer.body);
    end_stream(nullptr);
  } else if (answer.status >= 400) {
    post_error(answer.status < 500 ? "Runtime.BadRequest" : "Runtime.Internal", answer.body);
  } else {
    post_response(answer.content_type, answer.body);
  }
}

void Worker::invoke_http(const Event& event) {
  Call call;
  call.body = event.body;
  call.content_type = event.content_type;
  call.method = event.method;
  call.path = event.path;
  call.query = event.query;
  // A front end that streams takes nothing but streams; load balancers know none.
  const bool streams = host_.streaming && event.source != Event::Source::alb;
  if (streams) allow_stream(call, "application/vnd.awslambda.http-integration-response", stream_prelude(200, "text/event-stream"));
  Answer answer;
  guarded(
      [&] {
        if (event.bad_body) fail(Code::request, "body: isBase64Encoded is true, but this is no Base64");
        answer = handle(call);
      },
      [&](const Error& e) {
        answer = http_error(e);
        if (stream_.begun() || answer.status >= 500) fail(e);
      });
  if (!streams) return post_response("application/json", http_answer(event, answer));
  if (!stream_.begun()) stream_.set_prelude(stream_prelude(answer.status, answer.content_type));
  stream_.write(answer.body);
  end_stream(nullptr);
}

void Worker::invoke_batch(const Event& event) {
  std::vector<std::string_view> failed;
  for (const Event::Record& record : event.records) {
    bool done = false;
    guarded(
        [&] {
          if (call_deadline_us_ && monotonic_us() >= call_deadline_us_) fail(Code::request, "no time is left");
          if (event.fifo && !failed.empty()) fail(Code::request, "a message before it in the queue has failed");
          Call call;
          call.body = record.body;
          call.content_type = "application/json";
          done = handle(call).status < 400;
        },
        [&](const Error& e) { log_line(LogLevel::warn, cat("message ", quoted(record.id), ": ", e.message)); });
    if (!done) failed.push_back(record.id);
  }
  post_response("application/json", batch_answer(failed));
}

void Worker::post_response(std::string_view content_type, std::string_view body) {
  if (body.size() > kMaxResponse)
    return post_error("Function.ResponseSizeTooLarge", cat("the answer has ", body.size(), " bytes; the platform takes ", kMaxResponse));
  std::string headers;
  append_header(headers, "Content-Type", content_type);
  post("response", headers, body);
}

void Worker::post_error(std::string_view type, std::string_view message) {
  log_line(LogLevel::error, cat(type, ": ", message));
  std::string headers;
  append_header(headers, "Content-Type", "application/json");
  append_header(headers, kErrorTypeHeader, type);
  post("error", headers, error_body(type, message));
}

// Once, and once again where the connection broke. Refusals (an answer too late or too large) end nothing but this invocation.
void Worker::post(std::string_view what, std::string& headers, std::string_view body) {
  if (!invocation_id_.empty()) append_header(headers, "Lambda-Runtime-Invocation-Id", invocation_id_);
  const std::string path = cat(kRoot, "/invocation/", id_, "/", what);
  Posting posting;
  if (!api_.call("POST", path, headers, body) && !api_.call("POST", path, headers, body))
    return log_line(LogLevel::error, cat("posting the ", what, ": ", api_.error()));
  const int status = api_.response().status();
  if (status >= 300) log_line(LogLevel::warn, cat("the ", what, " was refused with status ", status));
  fatal_ = status == 500;
}

void Worker::end_stream(const Error* error) {
  if (error) log_line(LogLevel::error, cat("the stream ends: ", error->message));
  const bool ended = error ? stream_.fail(error_type(error->code), error_body(error_type(error->code), error->message)) : stream_.end();
  if (!ended) return log_line(LogLevel::warn, cat("the stream broke: ", api_.error()));
  if (const int status = api_.response().status(); status >= 300)
    log_line(LogLevel::warn, cat("the stream was refused with status ", status));
}

// ---- init

// Answers in place of a model that could not be loaded when it was too late to say so.
class Broken final : public Handler {
 public:
  explicit Broken(Error e) : error_(std::move(e)) {}
  Answer handle(const Call&) override { fail(error_); }

 private:
  Error error_;
};

// A second connection that registers an extension without events and waits for one: only with an extension does the
// platform send SIGTERM. Its last answer never comes, so nobody has to wait for it.
class Extension {
 public:
  Extension(const ApiAddress& address, std::string_view agent) : api_(address, agent) {}
  // The first two before the first call to `next`. What fails here is not needed for answers.
  void ask() {
    asked_ = api_.send("POST", "/2020-01-01/extension/register", "Lambda-Extension-Name: tealight\r\nContent-Type: application/json\r\n",
                       "{\"events\":[]}");
  }
  void wait() { asked_ = asked_ && api_.receive() && api_.response().status() == 200; }
  void poll() {
    if (!asked_) return api_.close();
    std::string headers;
    append_header(headers, "Lambda-Extension-Identifier", api_.response().header("lambda-extension-identifier"));
    api_.send("GET", "/2020-01-01/extension/event/next", headers, {});
  }

 private:
  Connection api_;
  bool asked_ = false;
};

void report_init_error(Connection& api, const Error& e) {
  const std::string_view type = error_type(e.code);
  log_line(LogLevel::fatal, cat(type, ": ", e.message));
  std::string headers;
  append_header(headers, "Content-Type", "application/json");
  append_header(headers, kErrorTypeHeader, type);
  if (!api.call("POST", "/2018-06-01/runtime/init/error", headers, error_body(type, e.message)))
    log_line(LogLevel::error, cat("reporting it: ", api.error()));
}

// SnapStart: returns in each process that is made from the snapshot.
bool wait_for_restore(Connection& api) {
  const bool restored = api.call("GET", "/2018-06-01/runtime/restore/next") && api.response().status() == 200;
  if (!restored)
    log_line(LogLevel::fatal, cat("waiting for the restore: ", api.error().empty() ? cat("status ", api.response().status()) : api.error()));
  api.close();                                    // a connection of before the snapshot leads nowhere
  return restored;
}

void* run_worker(void* p) {
  Host& host = *static_cast<Host*>(p);
  { std::lock_guard open(host.gate); }
  Worker(host).run();
  ::_exit(1);                                     // one that cannot go on ends the environment
}

void start_workers(Host& host, int n) {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  for (int i = 0; i < n; i++)
    if (::pthread_create(&thread, &attributes, run_worker, &host) != 0) break;    // fewer calls at a time
  ::pthread_attr_destroy(&attributes);
}

bool wants_streams() {
  for (const char* name : {"TEALIGHT_INVOKE_MODE", "AWS_LWA_INVOKE_MODE"}) {
    std::string mode(environment(name));
    for (char& c : mode) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
    if (!mode.empty()) return mode == "response_stream";
  }
  return false;
}

}  // namespace

void set_up_logs() {
  static constexpr std::string_view names[] = {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"};
  const std::string_view level = environment("AWS_LAMBDA_LOG_LEVEL");
  int least = int(LogLevel::info);
  for (int i = 0; i < 6; i++)
    if (level == names[i]) least = i;
  log_setup(environment("AWS_LAMBDA_LOG_FORMAT") == "JSON", LogLevel(least));
}

int serve(const Load& load, const Options& options) {
  Host host;
  host.agent = options.agent;
  const std::string_view address = environment("AWS_LAMBDA_RUNTIME_API");
  if (!parse_address(address, host.address))
    fail(Code::usage, "AWS_LAMBDA_RUNTIME_API: expected ADDRESS:PORT with a numeric address or localhost, got ", quoted(address));
  handle_signals();
  Connection api(host.address, host.agent);
  Extension extension(host.address, host.agent);
  extension.ask();                                // its answer comes while we load
  const bool snapshot = environment("AWS_LAMBDA_INITIALIZATION_TYPE") == "snap-start";
  const int workers = std::clamp(::atoi(std::string(environment("AWS_LAMBDA_MAX_CONCURRENCY")).c_str()), 1, kMaxThreads);
  host.concurrent = workers > 1;
  host.streaming = wants_streams();
  host.gate.lock();
  Loaded loaded;
  const auto lock_down = [&] {
    const SandboxPolicy policy{.connect_port = host.address.port()};
    const auto more = [&] { start_workers(host, workers - 1); };
    if (loaded.lm) enter_sandbox(*loaded.lm, policy, options.sandbox, more);
    else enter_sandbox(policy, options.sandbox, more);
  };
  // Where it cannot fail, the sandbox is entered while the first event is waited for, before anything is read.
  const bool early = snapshot || options.sandbox == SandboxMode::require;
  Loading loading;
  bool failed = false, later = false;
  const auto finish = [&] {
    loaded = loading.finish();
    host.handler = loaded.handler.get();
  };
  guarded(
      [&] {
        loading = load(snapshot);
        later = loading.certain && !early;
        if (later) return;
        finish();
        if (early) lock_down();
      },
      [&](const Error& e) {
        failed = true;
        extension.wait();                           // the API is told about one thing after the other
        report_init_error(api, e);
      });
  if (!failed) extension.wait();
  if (failed || (snapshot && !wait_for_restore(api))) ::_exit(1);   // workers may wait for what would be destroyed here
  Worker first(host);
  release_startup_pages();
  first.ask();
  extension.poll();
  if (later)
    guarded(finish, [&](const Error& e) {
      loaded.handler = std::make_unique<Broken>(e);
      host.handler = loaded.handler.get();
      host.broken = true;
    });
  if (!early) lock_down();
  release_startup_pages();
  host.gate.unlock();
  first.run();
  ::_exit(1);
}

}  // namespace tealight::lambda
