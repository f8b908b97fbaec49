#include "src/host/lm_handler.h"

#include <time.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/host/openai.h"

namespace tealight {
namespace {

Answer refusal(int status, std::string message, std::string_view code) {
  return {.status = status, .body = ApiError{status, std::move(message), "invalid_request_error", code, ""}.json()};
}

ApiKind kind_of(std::string_view path) {
  return path.ends_with("/chat/completions") ? ApiKind::chat : path.ends_with("/completions") ? ApiKind::completion : ApiKind::any;
}

JsonDoc parse_body(std::string_view body) {
  try {
    return JsonDoc::parse(body, "request");
  } catch (const Error& e) {
    fail(Error(e.code == Code::format ? Code::request : e.code, e.message));
  }
}

std::string models_json(const Lm& lm) {
  std::string out;
  JsonWriter w(out);
  w.begin_object().field("object", "list").key("data").begin_array().begin_object();
  w.field("id", lm.name()).field("object", "model").field("created", 0).field("owned_by", "tealight");
  w.end_object().end_array().end_object();
  return out;
}

}  // namespace

Answer LmHandler::handle(const Call& call) {
  std::string_view path = call.path;
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const bool post = call.method == "POST", get = call.method == "GET" || call.method == "HEAD";
  const bool model = path == "/" || kind_of(path) != ApiKind::any, list = path.ends_with("/models");
  const bool state = path == "/" || path == "/health" || path == "/ready";
  if (model && post) return generate(call);
  if (list && get) return {.body = models_json(lm_)};
  if (state && get) return {.body = "{\"status\":\"ok\"}"};
  if (model || list || state) return refusal(405, cat(quoted(call.method), " is not what this path takes"), "method_not_allowed");
  return refusal(404, cat("there is no ", quoted(call.path, 200)), "unknown_url");
}

// The model's file is no fault of the request that finds it out.
void LmHandler::check_model() {
  if (checked_) return;
  try {
    lm_.finish_checks();
  } catch (const Error& e) {
    fail(Error(Code::model, e.message));
  }
  checked_ = true;
}

Answer LmHandler::generate(const Call& call) {
  check_model();
  const JsonDoc own = parse_body(call.body), whole = with_defaults(lm_.default_fields(), own.root());
  const GenerateRequest request = parse_api_request(whole.root(), kind_of(call.path));
  for (const std::string& name : request.unknown) warn("unknown field ", quoted(name), " is ignored");
  AnswerHead head;
  head.id = request.id;
  if (head.id.empty() && !call.request_id.empty()) json_quote(head.id, cat(request.chat ? "chatcmpl-" : "cmpl-", call.request_id));
  head.created = ::time(nullptr);
  head.model = lm_.name();
  GenerateControl control;
  control.cancelled = call.gone;
  control.deadline_us = call.deadline_us;
  if (!request.stream || !call.write)
    return {.body = api_answer(head, request, generator_.generate(request, {}, control), lm_.tokenizer())};
  ApiStream stream(head, request);
  bool begun = false;
  const auto begin = [&] { return std::exchange(begun, true) || !request.chat || call.write(stream.begin()); };
  const GenerateResult result =
      generator_.generate(request, [&](std::string_view text) { return begin() && call.write(stream.text(text)); }, control);
  begin();
  return {.content_type = "text/event-stream", .body = stream.end(result, lm_.tokenizer())};
}

}  // namespace tealight
