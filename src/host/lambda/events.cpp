#include "src/host/lambda/events.h"

#include <algorithm>

#include "src/base/base64.h"
#include "src/base/unicode.h"
#include "src/host/http.h"
#include "src/host/openai.h"

namespace tealight::lambda {
namespace {

std::string_view text(Json v) { return v.is_string() ? v.string("") : std::string_view(); }
bool truth(Json v) { return v.is(Json::Kind::boolean) && v.boolean(""); }

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return (x | 32) == (y | 32); });
}

// A header's value, the first one where there are several.
std::string_view header(Json event, std::string_view name) {
  for (const auto& [key, value] : event["headers"].members())
    if (same_word(key, name)) return text(value);
  for (const auto& [key, value] : event["multiValueHeaders"].members())
    if (same_word(key, name)) return text(value[size_t(0)]);
  return {};
}

void append_encoded(std::string& out, std::string_view s, bool raw) {
  constexpr std::string_view plain = "-._~";
  for (char c : s) {
    const bool keep = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || plain.find(c) != plain.npos;
    if (raw || keep) out += c;
    else (out += '%') += {"0123456789ABCDEF"[uint8_t(c) >> 4], "0123456789ABCDEF"[c & 15]};
  }
}

// name=value&...; API Gateway decodes names and values, load balancers hand them on as they came.
std::string query(Json event, bool raw) {
  std::string out;
  const auto add = [&](std::string_view name, std::string_view value) {
    if (!out.empty()) out += '&';
    append_encoded(out, name, raw);
    out += '=';
    append_encoded(out, value, raw);
  };
  if (Json many = event["multiValueQueryStringParameters"]; many.is_object()) {
    for (const auto& [name, values] : many.members())
      for (Json v : values.elements()) add(name, text(v));
  } else {
    for (const auto& [name, value] : event["queryStringParameters"].members()) add(name, text(value));
  }
  return out;
}

void read_http(Json e, Event& out) {
  Json context = e["requestContext"];
  if (out.source == Event::Source::http_v2) {
    out.method = text(context["http"]["method"]);
    out.path = text(e["rawPath"]);
    out.query = text(e["rawQueryString"]);
    const std::string_view stage = text(context["stage"]);   // a named stage stands before the path
    if (stage != "$default" && !stage.empty() && out.path.starts_with('/') && out.path.substr(1).starts_with(stage) &&
        (out.path.size() == stage.size() + 1 || out.path[stage.size() + 1] == '/'))
      out.path.remove_prefix(stage.size() + 1);
  } else {
    out.method = text(e["httpMethod"]);
    out.path = text(e["path"]);
    out.query = query(e, out.source == Event::Source::alb);
    out.multi_value = e["multiValueHeaders"].is_object() && !e["headers"].is_object();
  }
  if (out.path.empty()) out.path = "/";
  out.content_type = header(e, "content-type");
  const std::string_view body = text(e["body"]);
  if (truth(e["isBase64Encoded"])) out.bad_body = !base64_decode(body, out.body);
  else out.body = body;
}

bool is_warm_up(Json e) {
  if (e["messages"] || e["prompt"] || e["input"]) return false;
  const std::string_view source = text(e["source"]);
  return source == "aws.events" || source == "aws.scheduler" || source == "serverless-plugin-warmup" || truth(e["warmer"]) ||
         truth(e["ping"]);
}

void write_headers(JsonWriter& w, std::string_view content_type, bool lists) {
  w.key(lists ? "multiValueHeaders" : "headers").begin_object().key("content-type");
  if (lists) w.begin_array().value(content_type).end_array();
  else w.value(content_type);
  w.end_object();
}

}  // namespace

Event read_event(Json e) {
  Event out;
  Json context = e["requestContext"], records = e["Records"];
  if (context["http"].is_object()) out.source = Event::Source::http_v2;
  else if (context["elb"].is_object()) out.source = Event::Source::alb;
  else if (context.is_object() && e["httpMethod"].is_string()) out.source = Event::Source::http_v1;
  else if (text(records[size_t(0)]["eventSource"]) == "aws:sqs") out.source = Event::Source::sqs;
  else if (is_warm_up(e)) out.source = Event::Source::warm_up;
  if (out.is_http()) read_http(e, out);
  if (out.source == Event::Source::sqs) {
    for (Json r : records.elements()) out.records.push_back({text(r["messageId"]), text(r["body"])});
    out.fifo = text(records[size_t(0)]["eventSourceARN"]).ends_with(".fifo");
  }
  return out;
}

std::string http_answer(const Event& event, const Answer& answer) {
  const bool binary = !utf8_valid(answer.body);
  std::string out;
  out.reserve(answer.body.size() + answer.body.size() / 8 + 256);
  JsonWriter w(out);
  w.begin_object().field("statusCode", answer.status);
  if (event.source == Event::Source::alb)
    w.field("statusDescription", cat(answer.status, " ", http_reason(answer.status)));
  write_headers(w, answer.content_type, event.multi_value);
  if (binary) w.field("body", base64(answer.body));
  else w.field("body", answer.body);
  w.field("isBase64Encoded", binary).end_object();
  return out;
}

std::string stream_prelude(int status, std::string_view content_type) {
  std::string out;
  JsonWriter w(out);
  w.begin_object().field("statusCode", status);
  write_headers(w, content_type, false);
  w.end_object();
  out.append(8, '\0');
  return out;
}

std::string batch_answer(const std::vector<std::string_view>& failed) {
  std::string out;
  JsonWriter w(out);
  w.begin_object().key("batchItemFailures").begin_array();
  for (std::string_view id : failed) w.begin_object().field("itemIdentifier", id).end_object();
  w.end_array().end_object();
  return out;
}

std::string error_body(std::string_view type, std::string_view message) {
  std::string out;
  JsonWriter w(out);
  w.begin_object().field("errorMessage", message.empty() ? type : message).field("errorType", type);
  w.key("stackTrace").begin_array().end_array().end_object();
  return out;
}

Answer http_error(const Error& error) {
  const ApiError e = api_error(error);
  return {.status = e.status, .body = e.json()};
}

std::string_view error_type(Code code) {
  switch (code) {
    case Code::usage: return "Runtime.Configuration";
    case Code::file: return "Runtime.ModelFile";
    case Code::format: return "Runtime.ModelFormat";
    case Code::unsupported: return "Runtime.Unsupported";
    case Code::model: return "Runtime.Model";
    case Code::tokenizer: return "Runtime.Tokenizer";
    case Code::template_: return "Runtime.Template";
    case Code::request: return "Runtime.BadRequest";
    case Code::memory: return "Runtime.OutOfMemory";
    default: return "Runtime.Internal";
  }
}

}  // namespace tealight::lambda
