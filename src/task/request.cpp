#include "src/task/request.h"

#include <charconv>
#include <cstdlib>

#include "src/base/error.h"

namespace tealight {
namespace {

// A field that is absent or null is left alone.
Json given(Json request, std::string_view name) {
  Json v = request[name];
  return v.is_null() ? Json() : v;
}

void read(Json request, std::string_view name, bool& out) {
  if (Json v = given(request, name)) out = v.boolean(name);
}

void read(Json request, std::string_view name, double low, double high, double& out) {
  Json v = given(request, name);
  if (!v) return;
  const double x = v.number(name);
  if (!(x >= low && x <= high)) fail(Code::request, name, ": ", x, " is not a number from ", low, " to ", high);
  out = x;
}

void read(Json request, std::string_view name, int64_t low, int64_t high, int64_t& out) {
  Json v = given(request, name);
  if (!v) return;
  const int64_t x = v.integer(name);
  if (x < low || x > high) fail(Code::request, name, ": ", x, " is not a whole number from ", low, " to ", high);
  out = x;
}

void read_sampling(Json r, GenerateRequest& q) {
  SamplingOptions& s = q.sampling;
  read(r, "temperature", 0, 100, s.temperature);
  read(r, "top_p", 0, 1, s.top_p);
  read(r, "min_p", 0, 1, s.min_p);
  read(r, "typical_p", 0, 1, s.typical_p);
  read(r, "repetition_penalty", 0.01, 100, s.repetition_penalty);
  read(r, "frequency_penalty", -2, 2, s.frequency_penalty);
  read(r, "presence_penalty", -2, 2, s.presence_penalty);
  int64_t top_k = 0;
  read(r, "top_k", -1, INT32_MAX, top_k);
  s.top_k = top_k < 0 ? 0 : int(top_k);
  if (Json v = given(r, "seed"))
    q.seed = v.is(Json::Kind::integer) && v.node()->is_u64 ? v.unsigned_integer("seed") : uint64_t(v.integer("seed"));
  if (Json bias = given(r, "logit_bias")) {
    if (!bias.is_object()) fail(Code::request, "logit_bias: expected an object of token ids and numbers, got ", kind_name(bias.kind()));
    if (bias.size() > RequestLimits::max_logit_biases)
      fail(Code::request, "logit_bias: ", bias.size(), " tokens are more than ", RequestLimits::max_logit_biases);
    for (auto [key, value] : bias.members()) {
      TokenId id = -1;
      auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size() || id < 0)
        fail(Code::request, "logit_bias: ", quoted(key), " is not a token id");
      const double x = value.number(cat("logit_bias.", id));
      if (!(x >= -100 && x <= 100)) fail(Code::request, "logit_bias.", id, ": ", x, " is not a number from -100 to 100");
      s.logit_bias.emplace_back(id, x);
    }
  }
}

// Chat completions: a boolean and top_logprobs. Completions: the number of most likely tokens.
void read_logprobs(Json r, GenerateRequest& q) {
  Json v = given(r, "logprobs");
  int64_t top = 0;
  read(r, "top_logprobs", 0, kMaxTopLogprobs, top);
  const bool wanted = v && (v.is_number() || v.boolean("logprobs"));
  if (!wanted && top > 0) fail(Code::request, "top_logprobs: needs \"logprobs\": true");
  if (v.is_number()) read(r, "logprobs", 0, kMaxTopLogprobs, top);
  if (wanted) q.sampling.top_logprobs = int(top);
}

void read_stop(Json r, GenerateRequest& q) {
  Json v = given(r, "stop");
  if (!v) return;
  const auto add = [&](Json s) {
    std::string_view text = s.string("stop");
    if (text.empty() || text.size() > RequestLimits::max_stop_bytes)
      fail(Code::request, "stop: a string of ", text.size(), " bytes; expected 1 to ", RequestLimits::max_stop_bytes);
    q.stop.emplace_back(text);
  };
  if (!v.is_array()) return add(v);
  if (v.size() > RequestLimits::max_stops) fail(Code::request, "stop: ", v.size(), " strings are more than ", RequestLimits::max_stops);
  for (Json s : v.elements()) add(s);
}

// The text of a message's content: a string, or an array of text parts, which are joined by line ends.
std::string content_text(Json content, const std::string& where) {
  if (content.is_string()) return std::string(content.string(where));
  if (!content.is_array()) fail(Code::request, where, ": expected a string or an array of text parts, got ", kind_name(content.kind()));
  std::string text;
  size_t i = 0;
  for (Json part : content.elements()) {
    const std::string at = cat(where, "[", i, "]");
    if (!part.is_object()) fail(Code::request, at, ": expected an object, got ", kind_name(part.kind()));
    if (std::string_view type = part["type"].string(at + ".type"); type != "text")
      fail(Code::request, at, ".type: ", quoted(type), " is not supported; only \"text\" is");
    if (i++) text += '\n';
    text += part["text"].string(at + ".text");
  }
  return text;
}

void read_messages(Json messages, GenerateRequest& q) {
  if (!messages.is_array()) fail(Code::request, "messages: expected an array, got ", kind_name(messages.kind()));
  if (messages.size() == 0) fail(Code::request, "messages: is empty; at least one message is needed");
  if (messages.size() > RequestLimits::max_messages)
    fail(Code::request, "messages: ", messages.size(), " are more than ", RequestLimits::max_messages);
  JsonWriter w(q.messages);
  w.begin_array();
  size_t i = 0;
  for (Json m : messages.elements()) {
    const std::string at = cat("messages[", i++, "]");
    if (!m.is_object()) fail(Code::request, at, ": expected an object, got ", kind_name(m.kind()));
    if (m["role"].string(at + ".role").empty()) fail(Code::request, at, ".role: is empty");
    Json content = given(m, "content");
    if (!content && !m["tool_calls"].is_array()) fail(Code::request, at, ".content: missing; a message needs a text");
    w.begin_object();
    for (auto [key, value] : m.members())
      if (key != "content") w.field(key, value);
    w.key("content");
    if (content) w.value(content_text(content, at + ".content"));
    else w.null();
    w.end_object();
  }
  w.end_array();
}

// A text or token ids, or an array of one of these.
void read_prompt_text(Json prompt, GenerateRequest& q) {
  if (prompt.is_array() && prompt.size() > 0 && !prompt[size_t(0)].is_number()) {
    if (prompt.size() > 1) fail(Code::request, "prompt: ", prompt.size(), " prompts in one request; only one is supported");
    prompt = prompt[size_t(0)];
  }
  if (!prompt.is_array()) {
    q.prompt = prompt.string("prompt");
    return;
  }
  if (prompt.size() == 0) fail(Code::request, "prompt: is an empty array; give a text or token ids");
  q.prompt_ids.reserve(prompt.size());
  for (Json id : prompt.elements()) {
    const int64_t x = id.integer("prompt");
    if (x < 0 || x > INT32_MAX) fail(Code::request, "prompt: ", x, " is not a token id");
    q.prompt_ids.push_back(TokenId(x));
  }
}

void read_prompt(Json r, GenerateRequest& q) {
  Json messages = given(r, "messages"), prompt = given(r, "prompt");
  if (messages && prompt) fail(Code::request, "messages, prompt: give one of the two, not both");
  if (!messages && !prompt) fail(Code::request, "messages: missing; give messages (an array) or prompt (a string)");
  q.chat = bool(messages);
  if (!q.chat) return read_prompt_text(prompt, q);
  read_messages(messages, q);
  if (Json tools = given(r, "tools")) {
    if (!tools.is_array()) fail(Code::request, "tools: expected an array, got ", kind_name(tools.kind()));
    if (tools.size() > 0) JsonWriter(q.tools).value(tools);
  }
  if (Json more = given(r, "chat_template_kwargs")) {
    if (!more.is_object()) fail(Code::request, "chat_template_kwargs: expected an object, got ", kind_name(more.kind()));
    JsonWriter(q.template_variables).value(more);
  }
}

GenerateRequest read_request(Json r) {
  if (!r.is_object()) fail(Code::request, "expected a JSON object, got ", kind_name(r.kind()));
  GenerateRequest q;
  q.id = request_id(r);
  if (Json id = given(r, "id"); id && q.id.empty()) fail(Code::request, "id: expected a string or a number, got ", kind_name(id.kind()));
  read_prompt(r, q);
  read_sampling(r, q);
  read_logprobs(r, q);
  read_stop(r, q);
  read(r, "max_tokens", 1, RequestLimits::max_tokens, q.max_tokens);
  read(r, "max_completion_tokens", 1, RequestLimits::max_tokens, q.max_tokens);
  read(r, "min_tokens", 0, RequestLimits::max_tokens, q.min_tokens);
  if (q.max_tokens > 0 && q.min_tokens > q.max_tokens)
    fail(Code::request, "min_tokens: ", q.min_tokens, " is more than max_tokens (", q.max_tokens, ")");
  read(r, "ignore_eos", q.ignore_eos);
  read(r, "stream", q.stream);
  if (Json o = given(r, "stream_options")) {
    if (!o.is_object()) fail(Code::request, "stream_options: expected an object, got ", kind_name(o.kind()));
    read(o, "include_usage", q.stream_usage);
  }
  int64_t n = 1;
  read(r, "n", 1, 1, n);
  if (given(r, "x_delay_ms") || given(r, "x_fail_after")) {
    const char* faults = std::getenv("TEALIGHT_TEST_FAULTS");
    if (!faults || std::string_view(faults) != "1") fail(Code::request, "x_delay_ms, x_fail_after: only for tests (TEALIGHT_TEST_FAULTS=1)");
    read(r, "x_delay_ms", 0, 60'000, q.delay_ms);
    read(r, "x_fail_after", 0, RequestLimits::max_tokens, q.fail_after);
  }
  static constexpr std::string_view known[] = {
      "id", "messages", "prompt", "tools", "chat_template_kwargs", "temperature", "top_p", "top_k", "min_p", "typical_p",
      "repetition_penalty", "frequency_penalty", "presence_penalty", "seed", "logit_bias", "logprobs", "top_logprobs", "stop",
      "max_tokens", "max_completion_tokens", "min_tokens", "ignore_eos", "stream", "stream_options", "n", "model", "user",
      "x_delay_ms", "x_fail_after"};
  for (auto [key, value] : r.members()) {
    bool found = false;
    for (std::string_view k : known) found |= k == key;
    if (!found && q.unknown.size() < 100) q.unknown.emplace_back(key);
  }
  return q;
}

}  // namespace

std::string request_id(Json request) {
  std::string out;
  if (Json id = request["id"]; id.is_string() || id.is_number()) JsonWriter(out).value(id);
  return out;
}

GenerateRequest parse_request(Json request) {
  try {
    return read_request(request);
  } catch (const Error& e) {
    fail(Error(e.code == Code::format ? Code::request : e.code, e.message));  // format: a value of the wrong kind
  }
}

std::string check_defaults(std::string_view text, std::string_view what) {
  const JsonDoc doc = JsonDoc::parse(text, what);
  const Json fields = doc.root();
  if (!fields.is_object()) fail(Code::request, what, ": expected an object of request fields, got ", kind_name(fields.kind()));
  for (const char* own : {"id", "messages", "prompt"})
    if (fields[own]) fail(Code::request, what, ": ", own, " belongs to one request; it has no default");
  const JsonDoc whole = with_defaults(text, JsonDoc::parse(R"({"prompt":""})", what).root());
  GenerateRequest q;
  try {
    q = parse_request(whole.root());
  } catch (const Error& e) {
    fail(e.code, what, ": ", e.message);
  }
  if (!q.unknown.empty()) fail(Code::request, what, ": no request has a field ", quoted(q.unknown[0]));
  std::string out;
  JsonWriter(out).value(fields);
  return out;
}

JsonDoc with_defaults(std::string_view defaults, Json request) {
  std::string text;
  JsonWriter w(text);
  if (!request.is_object() || defaults.empty()) {
    w.value(request);
    return JsonDoc::parse(text, "request");
  }
  const JsonDoc under = JsonDoc::parse(defaults, "defaults");
  w.begin_object();
  for (auto [key, value] : request.members()) w.field(key, value);
  for (auto [key, value] : under.root().members()) {
    const bool other_name = key == "max_completion_tokens" && request["max_tokens"];   // the newer one would win
    if (!request[key] && !other_name) w.field(key, value);
  }
  w.end_object();
  return JsonDoc::parse(text, "request");
}

std::string message_json(std::string_view role, std::string_view content) {
  std::string out;
  JsonWriter(out).begin_object().field("role", role).field("content", content).end_object();
  return out;
}

}  // namespace tealight
