#include "src/host/api_service.h"

#include <time.h>
#include <unistd.h>

#include <new>
#include <stdexcept>

#include "src/base/log.h"
#include "src/host/embeddings.h"

namespace tealight {
namespace {

constexpr std::string_view kJson = "application/json", kText = "text/plain; charset=utf-8";
constexpr size_t kLoaderStackBytes = 8 << 20;

constexpr std::string_view kGetPaths[] = {"/", "/health", "/ready", "/metrics", "/v1/models", "/models"};

constexpr std::string_view kWelcome =
    "Tealight. POST /v1/chat/completions, /v1/completions, /v1/embeddings; GET /v1/models, /health, /ready, /metrics.\n";

// One generation's way back to its client.
class ApiSink : public GenerationSink {
 public:
  // `reply_wrap`: the answer's JSON becomes what the host wants.
  using Wrap = std::string (*)(int status, std::string_view body);
  ApiSink(std::shared_ptr<HttpReply> reply, AnswerHead head, const GenerateRequest& request, Lm& lm, Wrap wrap, bool fn)
      : reply_(std::move(reply)), head_(std::move(head)), lm_(lm), wrap_(wrap), fn_(fn) {
    request_.chat = request.chat;
    request_.stream = request.stream;
    request_.stream_usage = request.stream_usage;
    request_.sampling.top_logprobs = request.sampling.top_logprobs;
  }
  void admitted(size_t) override {
    if (!request_.stream) return;
    stream_ = std::make_unique<ApiStream>(head_, request_);
    reply_->begin(200, "text/event-stream", fn_ ? kFnHeaders : kStreamHeaders);
    reply_->write(stream_->begin());
  }
  bool text(std::string_view piece) override { return stream_ ? reply_->write(stream_->text(piece)) : !reply_->gone(); }
  void done(const GenerateResult& result) override {
    if (reply_->gone()) return reply_->end();
    if (!request_.stream) return send(200, api_answer(head_, request_, result, lm_.tokenizer()));
    if (!stream_) admitted(0);          // cancelled before it began
    reply_->write(stream_->end(result, lm_.tokenizer()));
    reply_->end();
  }
  void failed(const Error& error) override {
    const ApiError e = api_error(error);
    if (!stream_) return send(e.status, e.json());
    reply_->write(cat("data: ", e.json(), "\n\n", kStreamEnd));
    reply_->end();
  }

  static void send_to(HttpReply& reply, int status, std::string_view body, bool fn, Wrap wrap = nullptr) {
    const std::string wrapped = wrap ? wrap(status, body) : std::string();
    const std::string_view retry = status == 503 ? "Retry-After: 1\r\n" : "";
    if (wrap) reply.send(200, kJson, wrapped);
    else if (fn) reply.send(200, kJson, body, cat("Fn-Http-Status: ", status, "\r\n", retry));
    else reply.send(status, kJson, body, retry);
  }

 private:
  static constexpr std::string_view kStreamHeaders = "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
  static constexpr std::string_view kFnHeaders = "Cache-Control: no-cache\r\nFn-Http-Status: 200\r\n";
  void send(int status, std::string_view body) { send_to(*reply_, status, body, fn_, wrap_); }

  std::shared_ptr<HttpReply> reply_;
  const AnswerHead head_;
  GenerateRequest request_;             // what the answer's form depends on
  Lm& lm_;
  Wrap wrap_;
  bool fn_;
  std::unique_ptr<ApiStream> stream_;
};

// Azure Functions' custom handlers wrap what triggered them: {"Data":{"req":{"Body":...}} or {"item":...},"Metadata":{...}}.
bool is_azure(Json body) { return body["Data"].is_object() && body["Metadata"].is_object(); }
std::string azure_request(Json body) {
  for (auto [name, trigger] : body["Data"].members()) {
    const Json inner = trigger.is_object() && trigger["Body"] ? trigger["Body"] : trigger;
    if (inner.is_object()) {
      std::string text;
      JsonWriter(text).value(inner);
      return text;
    }
    if (!inner.is_string()) continue;
    std::string text(inner.string(name));
    // A queue's item is a JSON string with the JSON text.
    if (text.starts_with('"')) text = JsonDoc::parse(text, name).root().string(name);
    return text;
  }
  fail(Code::request, "Data: holds no request; expected a trigger with a Body, or a text");
}
std::string azure_answer(int status, std::string_view body) {
  std::string response, out;
  JsonWriter r(response);
  r.begin_object().field("statusCode", status).field("status", status).key("headers").begin_object();
  r.field("Content-Type", kJson).end_object().field("body", body).end_object();
  JsonWriter w(out);
  w.begin_object().key("Outputs").begin_object().key("res").raw(response).end_object();
  w.key("Logs").begin_array().end_array().key("ReturnValue").raw(response).end_object();
  return out;
}

JsonDoc parse_body(std::string_view body) {
  try {
    return JsonDoc::parse(body, "body");
  } catch (const Error& e) {
    fail(Error(e.code == Code::format ? Code::request : e.code, e.message));
  }
}

std::string_view without_slash(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

void metric(std::string& out, std::string_view name, std::string_view kind, std::string_view help, double value) {
  out += cat("# HELP tealight_", name, ' ', help, "\n# TYPE tealight_", name, ' ', kind, "\ntealight_", name, ' ', value, '\n');
}

// RFC 3339 with a Z, to seconds of CLOCK_REALTIME; 0 for anything else. Days: Howard Hinnant, days_from_civil.
int64_t parse_time(std::string_view s) {
  if (s.size() < 20 || s.back() != 'Z' || s[10] != 'T') return 0;
  const auto number = [&](size_t at, size_t n) {
    int64_t x = 0;
    for (char c : s.substr(at, n)) {
      if (c < '0' || c > '9') return int64_t(-1);
      x = 10 * x + (c - '0');
    }
    return x;
  };
  int64_t year = number(0, 4);
  const int64_t month = number(5, 2), day = number(8, 2), hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  if (year < 1970 || month < 1 || month > 12 || day < 1 || hour < 0 || minute < 0 || second < 0) return 0;
  year -= month <= 2;
  const int64_t yoe = year % 400, doy = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const int64_t days = year / 400 * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
  return days * 86400 + hour * 3600 + minute * 60 + second;
}

int64_t unix_seconds() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec;
}

}  // namespace

ApiService::ApiService(ApiOptions options, Load load)
    : options_(std::move(options)), load_(std::move(load)), started_(unix_seconds()), started_us_(monotonic_us()) {
  if (::getentropy(&id_base_, sizeof id_base_) != 0) id_base_ = uint64_t(started_us_);
}

ApiService::~ApiService() {
  if (loading_) pthread_join(loader_, nullptr);
  scheduler_.reset();                   // before what it uses
}

void ApiService::start(HttpServer& server) {
  server_ = &server;
  mailbox_ = server.mailbox();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kLoaderStackBytes);
  const int error = pthread_create(&loader_, &attributes, [](void* p) -> void* {
    auto& self = *static_cast<ApiService*>(p);
    try {
      self.lm_ = self.load_();
      self.lm_->tokenizer();
    } catch (const std::exception& e) {
      self.load_error_ = e.what();
    }
    self.loaded_.store(true, std::memory_order_release);
    self.mailbox_->call();
    return nullptr;
  }, this);
  pthread_attr_destroy(&attributes);
  if (error) fail(Code::memory, "cannot start a thread to load the model");
  loading_ = true;
}

// The model is there: everything is opened and started that is needed from here on. Errors: Code::file, Code::unsupported.
void ApiService::begin() {
  enter_sandbox(*lm_, {.accept = true}, options_.sandbox, [this] { scheduler_ = std::make_unique<Scheduler>(*lm_, options_.scheduler); });
}

void ApiService::woken() {
  if (!loading_ || !loaded_.load(std::memory_order_acquire)) return;
  pthread_join(loader_, nullptr);
  loading_ = false;
  try {
    if (load_error_.empty()) begin();
  } catch (const Error& e) {
    load_error_ = e.message;
    scheduler_.reset();
  }
  std::vector<Held> held = std::move(held_);
  for (Held& h : held) {
    if (h.reply->gone()) continue;
    if (scheduler_) submit(h.route, h.body, h.reply);
    else refuse(*h.reply, {500, "the model cannot be loaded", "server_error", "", ""});
  }
  if (!scheduler_) {
    log_line(load_error_);
    server_->stop(1);
  } else if (server_->draining()) {
    scheduler_->drain();
  } else {
    log_line(LogLevel::info, cat("ready: ", lm_->name(), " after ", double((monotonic_us() - started_us_) / 100) / 10, " ms"));
  }
}

void ApiService::drain() {
  if (scheduler_) scheduler_->drain();
}

bool ApiService::ready() const {
  if (!scheduler_ || server_->draining()) return false;
  const SchedulerStats s = scheduler_->stats();
  return s.running + s.waiting < uint64_t(options_.scheduler.parallel) + uint64_t(options_.scheduler.queue);
}

void ApiService::refuse(HttpReply& reply, const ApiError& error) const { ApiSink::send_to(reply, error.status, error.json(), options_.fn); }

void ApiService::refuse_for_now(HttpReply& reply) const {
  const bool ends = server_->draining();
  refuse(reply, {503, ends ? "the server is shutting down" : "too many requests wait; try again later", "server_error", ends ? "" : "queue_full", ""});
}

std::optional<ApiService::Route> ApiService::route_of(std::string_view path) const {
  if (path == "/" || path == "/call" || path == "/events") return Route::any;   // Fn; events that the Lambda web adapter passes on
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  if (path == "/chat/completions") return Route::chat;
  if (path == "/completions") return Route::completion;
  if (path == "/embeddings") return Route::embeddings;
  return std::nullopt;
}

void ApiService::handle(HttpRequest q, std::shared_ptr<HttpReply> reply) {
  const std::string_view path = without_slash(q.path);
  const std::optional<Route> route = route_of(path);
  bool getable = path.starts_with("/v1/models/") || path.starts_with("/models/");
  for (std::string_view p : kGetPaths) getable |= p == path;

  if (getable && (q.method == "GET" || q.method == "HEAD")) return get(path, *reply);
  if (q.method == "POST" && (route || (options_.any_path && !getable))) {
    if (const int64_t t = parse_time(q.head->header("fn-deadline")))
      reply->deadline_us = std::max<int64_t>(monotonic_us() + (t - unix_seconds()) * 1'000'000 - 50'000, 1);
    if (options_.timeout_us && !reply->deadline_us) reply->deadline_us = monotonic_us() + options_.timeout_us;
    if (scheduler_) return submit(route.value_or(Route::any), q.body, reply);
    if (held_.size() >= size_t(options_.scheduler.queue)) return refuse_for_now(*reply);
    held_.push_back({route.value_or(Route::any), std::move(q.body), std::move(reply)});
    return;
  }
  if (!route && !getable) return refuse(*reply, {404, cat("there is no ", quoted(q.path, 200)), "invalid_request_error", "unknown_url", ""});
  const std::string_view allow = !getable ? "Allow: POST, OPTIONS\r\n" : route ? "Allow: GET, HEAD, POST, OPTIONS\r\n" : "Allow: GET, HEAD, OPTIONS\r\n";
  const ApiError e = {405, cat(quoted(q.method), " is not what this path takes"), "invalid_request_error", "method_not_allowed", ""};
  reply->send(405, kJson, e.json(), allow);
}

std::string ApiService::model_json() const {
  std::string out;
  JsonWriter(out).begin_object().field("id", lm_->name()).field("object", "model").field("created", started_).field("owned_by", "tealight").end_object();
  return out;
}

void ApiService::get(std::string_view path, HttpReply& reply) const {
  if (path == "/") return reply.send(200, kText, kWelcome);
  if (path == "/health") return reply.send(200, kJson, "{\"status\":\"ok\"}");
  if (path == "/metrics") return reply.send(200, "text/plain; version=0.0.4; charset=utf-8", metrics());
  if (path == "/ready") {
    const bool yes = ready();
    return reply.send(yes ? 200 : 503, kJson, yes ? "{\"status\":\"ready\"}" : "{\"status\":\"not ready\"}", yes ? "" : "Retry-After: 1\r\n");
  }
  if (!scheduler_) return refuse(reply, {503, "the model is being loaded", "server_error", "", ""});
  const size_t at = path.find("models") + 6;
  if (at == path.size()) return reply.send(200, kJson, cat("{\"object\":\"list\",\"data\":[", model_json(), "]}"));
  std::string name;                     // names may have slashes, which clients escape
  for (std::string_view rest = path.substr(at + 1); !rest.empty(); rest.remove_prefix(1)) {
    const bool slash = rest.starts_with("%2F") || rest.starts_with("%2f"), space = rest.starts_with("%20");
    name += slash ? '/' : space ? ' ' : rest[0];
    if (slash || space) rest.remove_prefix(2);
  }
  try {
    std::string request;
    JsonWriter(request).begin_object().field("model", name).end_object();
    check_model(JsonDoc::parse(request, "model").root());
    reply.send(200, kJson, model_json());
  } catch (const Error& e) {
    refuse(reply, {404, e.message, "invalid_request_error", "model_not_found", "model"});
  }
}

// Errors: Code::model.
void ApiService::check_model(Json request) const {
  const Json m = request["model"];
  if (!m.is_string()) return;           // absent: the one there is
  const std::string_view name = m.string("model");
  bool known = name.empty() || name == lm_->name() || name == "tealight";
  for (const std::string& alias : options_.aliases) known |= alias == "*" || alias == name;
  if (!known) fail(Code::model, "model: ", quoted(name), " is not here; this server has ", quoted(lm_->name()));
}

void ApiService::submit(Route route, std::string_view body, const std::shared_ptr<HttpReply>& reply) {
  ApiError error;
  bool azure = false;
  try {
    JsonDoc doc = parse_body(body);
    if (route == Route::any && is_azure(doc.root())) {
      azure = true;
      doc = parse_body(azure_request(doc.root()));
    }
    return submit_json(route, std::move(doc), reply, azure);
  } catch (const Error& e) {
    error = api_error(e);
    if (e.code == Code::model) error = {404, e.message, "invalid_request_error", "model_not_found", "model"};
  } catch (const std::bad_alloc&) {
    error = api_error(Error(Code::memory, "not enough memory for this request; make it shorter"));
  } catch (const std::length_error&) {
    error = {413, "the request is too large; make it shorter", "invalid_request_error", "request_too_large", ""};
  }
  ApiSink::send_to(*reply, error.status, error.json(), options_.fn, azure ? azure_answer : nullptr);
}

void ApiService::submit_json(Route route, JsonDoc doc, const std::shared_ptr<HttpReply>& reply, bool azure) {
  check_model(doc.root());
  if (route == Route::embeddings) {
    if (!std::make_shared<EmbeddingJob>(doc.root(), *scheduler_, reply)->submit()) refuse_for_now(*reply);
    return;
  }
  if (!lm_->default_fields().empty()) doc = with_defaults(lm_->default_fields(), doc.root());
  GenerateRequest request =
      parse_api_request(doc.root(), route == Route::chat ? ApiKind::chat : route == Route::completion ? ApiKind::completion : ApiKind::any);
  if (azure) request.stream = false;
  for (const std::string& name : request.unknown) warn("unknown field ", quoted(name), " is ignored");
  AnswerHead head;
  head.id = cat(request.chat ? "\"chatcmpl-" : "\"cmpl-", id_base_, "-", ++next_id_, "\"");
  head.created = unix_seconds();
  head.model = lm_->name();
  auto sink = std::make_shared<ApiSink>(reply, std::move(head), request, *lm_, azure ? azure_answer : nullptr, options_.fn);
  reply->job = scheduler_->submit(std::move(request), std::move(sink));
  if (!reply->job) refuse_for_now(*reply);
}

void ApiService::gone(HttpReply& reply) {
  if (scheduler_ && reply.job) scheduler_->cancel(reply.job);
}

std::string ApiService::metrics() const {
  std::string out;
  const HttpServer::Stats h = server_->stats();
  const SchedulerStats s = scheduler_ ? scheduler_->stats() : SchedulerStats();
  metric(out, "ready", "gauge", "1 when a request would be accepted.", ready());
  metric(out, "uptime_seconds", "gauge", "Time since the start.", double(monotonic_us() - started_us_) * 1e-6);
  metric(out, "connections", "gauge", "Open connections.", double(h.connections));
  metric(out, "connections_total", "counter", "Connections that came.", double(h.accepted));
  metric(out, "connections_refused_total", "counter", "Connections for which there was no room.", double(h.refused));
  out += "# HELP tealight_http_requests_total Answered requests by class of status.\n# TYPE tealight_http_requests_total counter\n";
  for (int i = 2; i < 6; i++) out += cat("tealight_http_requests_total{class=\"", i, "xx\"} ", h.by_class[i], '\n');
  metric(out, "http_vanished_total", "counter", "Requests whose client went before the end of the answer.", double(h.vanished));
  metric(out, "http_received_bytes_total", "counter", "Bytes from clients.", double(h.bytes_in));
  metric(out, "http_sent_bytes_total", "counter", "Bytes to clients.", double(h.bytes_out));
  metric(out, "generations_running", "gauge", "Generations that are evaluated.", double(s.running));
  metric(out, "generations_waiting", "gauge", "Generations that wait for room.", double(s.waiting));
  out += "# HELP tealight_generations_total Generations by how they ended.\n# TYPE tealight_generations_total counter\n";
  for (const auto& [name, n] : {std::pair<std::string_view, uint64_t>("done", s.done), {"failed", s.failed}, {"cancelled", s.cancelled}, {"refused", s.refused}})
    out += cat("tealight_generations_total{end=\"", name, "\"} ", n, '\n');
  metric(out, "prompt_tokens_total", "counter", "Tokens of prompts.", double(s.prompt_tokens));
  metric(out, "cached_tokens_total", "counter", "Of these, those that need not be evaluated.", double(s.cached_tokens));
  metric(out, "completion_tokens_total", "counter", "Tokens of answers.", double(s.completion_tokens));
  metric(out, "drafted_tokens_total", "counter", "Tokens that were guessed and checked.", double(s.drafted_tokens));
  metric(out, "accepted_tokens_total", "counter", "Of these, those that were right.", double(s.accepted_tokens));
  return out;
}

}  // namespace tealight
