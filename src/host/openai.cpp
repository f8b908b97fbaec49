#include "src/host/openai.h"

#include "src/host/http_server.h"

namespace tealight {
namespace {

// The bytes of a token as OpenAI's logprobs have them: its text, and each byte as a number.
void write_token(JsonWriter& w, TokenLogprob t, const Tokenizer& tokenizer) {
  std::string bytes;
  tokenizer.append_bytes(bytes, t.id, false, false);
  w.field("token", bytes).field("logprob", t.logprob).key("bytes").begin_array();
  for (char c : bytes) w.value(int(static_cast<unsigned char>(c)));
  w.end_array();
}

std::string token_text(TokenId id, const Tokenizer& tokenizer) {
  std::string bytes;
  tokenizer.append_bytes(bytes, id, false, false);
  return bytes;
}

// The log-probabilities of a completion: parallel arrays. text_offset counts the characters of the answer.
void write_completion_logprobs(JsonWriter& w, const GenerateRequest& request, const GenerateResult& result, const Tokenizer& tokenizer) {
  const size_t each = 1 + size_t(request.sampling.top_logprobs), n = result.logprobs.size() / each;
  const TokenLogprob* const p = result.logprobs.data();
  w.key("logprobs").begin_object().key("tokens").begin_array();
  for (size_t i = 0; i < n; i++) w.value(token_text(p[i * each].id, tokenizer));
  w.end_array().key("token_logprobs").begin_array();
  for (size_t i = 0; i < n; i++) w.value(p[i * each].logprob);
  w.end_array().key("top_logprobs").begin_array();
  for (size_t i = 0; i < n; i++) {
    w.begin_object();
    for (size_t j = 1; j < each; j++) w.field(token_text(p[i * each + j].id, tokenizer), p[i * each + j].logprob);
    w.end_object();
  }
  w.end_array().key("text_offset").begin_array();
  int64_t offset = 0;
  for (size_t i = 0; i < n; i++) {
    w.value(offset);
    for (char c : token_text(p[i * each].id, tokenizer)) offset += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }
  w.end_array().end_object();
}

std::string_view finish_word(Finish f) { return f == Finish::stop ? "stop" : "length"; }   // a deadline counts as a length

// Fields whose neglect would give an answer that was not asked for.
void refuse_unsupported(Json r) {
  const auto is_word = [](Json v, std::string_view a, std::string_view b = {}) {
    return v.is_string() && (v.string("") == a || (!b.empty() && v.string("") == b));
  };
  for (auto [key, v] : r.members()) {
    if (v.is_null()) continue;
    bool harmless = true;
    if (key == "response_format") harmless = v.is_object() && is_word(v["type"], "text");
    else if (key == "tool_choice") harmless = is_word(v, "auto", "none");
    else if (key == "function_call") harmless = is_word(v, "none");
    else if (key == "modalities") harmless = v.is_array() && v.size() == 1 && is_word(v[size_t(0)], "text");
    else if (key == "n" || key == "best_of") harmless = v.is_number() && v.number(key) == 1;
    else if (key == "echo" || key == "use_beam_search") harmless = v.is(Json::Kind::boolean) && !v.boolean(key);
    else if (key == "suffix") harmless = is_word(v, "");
    else if (key == "functions") harmless = v.is_array() && v.size() == 0;
    else
      for (std::string_view name : {"audio", "prediction", "web_search_options", "grammar", "json_schema", "guided_json", "guided_regex",
                                    "guided_choice", "guided_grammar", "structured_outputs"})
        harmless = harmless && key != name;
    if (!harmless) fail(Code::unsupported, key, ": this value is not supported");
  }
}

// "FIELD: ..." or "messages[0].content: ...": the field's name.
std::string field_of(std::string_view message) {
  const size_t end = message.find(": ");
  if (end == message.npos || end > 60) return {};
  for (char c : message.substr(0, end))
    if (!((c | 32) >= 'a' && (c | 32) <= 'z') && !(c >= '0' && c <= '9') && c != '_' && c != '.' && c != '[' && c != ']') return {};
  return std::string(message.substr(0, end));
}

}  // namespace

std::string ApiError::json() const { return http_error_json(message, type, param, code); }

ApiError api_error(const Error& e) {
  ApiError out;
  out.message = e.message;
  switch (e.code) {
    case Code::request:
    case Code::unsupported:
    case Code::template_:
    case Code::tokenizer:
    case Code::format:
      out.status = 400;
      out.type = "invalid_request_error";
      out.param = field_of(e.message);
      if (e.message.find("more than the context") != e.message.npos) out.code = "context_length_exceeded";
      if (e.code == Code::unsupported) out.code = "unsupported_parameter";
      break;
    case Code::memory:
      out.status = 503;
      out.code = "out_of_memory";
      break;
    default: out.status = 500;
  }
  return out;
}

GenerateRequest parse_api_request(Json body, ApiKind kind) {
  if (!body.is_object()) fail(Code::request, "expected a JSON object, got ", kind_name(body.kind()));
  refuse_unsupported(body);
  if (kind == ApiKind::chat && (!body["messages"] || body["messages"].is_null())) fail(Code::request, "messages: missing; an array of messages is needed");
  if (kind == ApiKind::completion && (!body["prompt"] || body["prompt"].is_null())) fail(Code::request, "prompt: missing; a text is needed");
  return parse_request(body);
}

void write_answer_head(JsonWriter& w, const AnswerHead& head, std::string_view object) {
  w.begin_object();
  if (!head.id.empty()) w.key("id").raw(head.id);
  w.field("object", object);
  if (head.created) w.field("created", head.created);
  w.field("model", head.model);
}

void write_usage(JsonWriter& w, const GenerateResult& result) {
  w.key("usage").begin_object();
  w.field("prompt_tokens", uint64_t(result.prompt_tokens)).field("completion_tokens", uint64_t(result.completion_tokens));
  w.field("total_tokens", uint64_t(result.prompt_tokens + result.completion_tokens));
  w.key("prompt_tokens_details").begin_object().field("cached_tokens", uint64_t(result.cached_tokens)).end_object();
  w.end_object();
}

void write_logprobs(JsonWriter& w, const GenerateRequest& request, const GenerateResult& result, const Tokenizer& tokenizer) {
  const size_t each = 1 + size_t(request.sampling.top_logprobs);
  w.key("logprobs").begin_object().key("content").begin_array();
  for (size_t i = 0; i + each <= result.logprobs.size(); i += each) {
    w.begin_object();
    write_token(w, result.logprobs[i], tokenizer);
    w.key("top_logprobs").begin_array();
    for (size_t j = 1; j < each; j++) {
      w.begin_object();
      write_token(w, result.logprobs[i + j], tokenizer);
      w.end_object();
    }
    w.end_array().end_object();
  }
  w.end_array().end_object();
}

std::string api_answer(const AnswerHead& head, const GenerateRequest& request, const GenerateResult& result, const Tokenizer& tokenizer) {
  std::string out;
  out.reserve(result.text.size() + 512);
  JsonWriter w(out);
  write_answer_head(w, head, request.chat ? "chat.completion" : "text_completion");
  w.key("choices").begin_array().begin_object().field("index", 0);
  if (request.chat) w.key("message").begin_object().field("role", "assistant").field("content", result.text).key("refusal").null().end_object();
  else w.field("text", result.text);
  w.field("finish_reason", finish_word(result.finish));
  if (request.sampling.top_logprobs < 0) w.key("logprobs").null();
  else if (request.chat) write_logprobs(w, request, result, tokenizer);
  else write_completion_logprobs(w, request, result, tokenizer);
  w.end_object().end_array();
  write_usage(w, result);
  w.end_object();
  return out;
}

ApiStream::ApiStream(const AnswerHead& head, const GenerateRequest& request) : head_(head), request_(request) {
  open_ = "data: ";
  JsonWriter w(open_);
  write_answer_head(w, head, request.chat ? "chat.completion.chunk" : "text_completion");
  if (request.stream_usage) w.key("usage").null();
  w.key("choices").begin_array();      // the rest is put on by hand
  tail_ = request.chat ? "},\"logprobs\":null,\"finish_reason\":null}]}\n\n" : ",\"logprobs\":null,\"finish_reason\":null}]}\n\n";
}

std::string ApiStream::begin() const {
  if (!request_.chat) return {};
  return cat(open_, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

std::string_view ApiStream::text(std::string_view piece) {
  event_ = open_;
  event_ += request_.chat ? "{\"index\":0,\"delta\":{\"content\":" : "{\"index\":0,\"text\":";
  json_quote(event_, piece);
  event_ += tail_;
  return event_;
}

std::string ApiStream::end(const GenerateResult& result, const Tokenizer& tokenizer) const {
  std::string choice;
  JsonWriter w(choice);
  w.begin_object().field("index", 0);
  if (request_.chat) w.key("delta").begin_object().end_object();
  else w.field("text", "");
  if (request_.sampling.top_logprobs < 0) w.key("logprobs").null();
  else if (request_.chat) write_logprobs(w, request_, result, tokenizer);
  else write_completion_logprobs(w, request_, result, tokenizer);
  w.field("finish_reason", finish_word(result.finish)).end_object();
  std::string out = cat(open_, choice, "]}\n\n");
  if (request_.stream_usage) {
    out += "data: ";
    JsonWriter u(out);
    write_answer_head(u, head_, request_.chat ? "chat.completion.chunk" : "text_completion");
    u.key("choices").begin_array().end_array();
    write_usage(u, result);
    u.end_object();
    out += "\n\n";
  }
  out += kStreamEnd;
  return out;
}

}  // namespace tealight
