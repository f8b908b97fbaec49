// The JSON of OpenAI's API: requests with the fields that are not supported refused by name, answers, the chunks of a stream,
// errors. https://platform.openai.com/docs/api-reference
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/error.h"
#include "src/task/generate.h"

namespace tealight {

// How an error is told: status of HTTP and the fields of the error object; empty ones are null.
struct ApiError {
  int status = 500;
  std::string message;
  std::string_view type = "server_error", code;
  std::string param;                  // the request's field, where it is known
  std::string json() const;           // {"error":{...}}
};
ApiError api_error(const Error& error);

// What a request may be: `any` takes messages or a prompt.
enum class ApiKind { chat, completion, any };
// Errors: Code::request or Code::unsupported, "FIELD: what is wrong".
GenerateRequest parse_api_request(Json body, ApiKind kind);

// What every answer begins with.
struct AnswerHead {
  std::string id;                     // JSON text; empty: none
  int64_t created = 0;                // Unix seconds; 0: none
  std::string model;
};

// Writes the parts that answers of all hosts have in common into an object that is open.
void write_answer_head(JsonWriter& w, const AnswerHead& head, std::string_view object);
void write_usage(JsonWriter& w, const GenerateResult& result);
// "logprobs": as chat completions have them.
void write_logprobs(JsonWriter& w, const GenerateRequest& request, const GenerateResult& result, const Tokenizer& tokenizer);

// The whole answer of a chat completion or a completion, each with log-probabilities in its own form.
std::string api_answer(const AnswerHead& head, const GenerateRequest& request, const GenerateResult& result, const Tokenizer& tokenizer);

// The events of a stream (text/event-stream).
class ApiStream {
 public:
  ApiStream(const AnswerHead& head, const GenerateRequest& request);
  std::string begin() const;          // a chat's first chunk, with the role; else nothing
  std::string_view text(std::string_view piece);   // valid until the next call
  // The last chunk, with the log-probabilities of the whole answer; the usage where it was asked for; the end mark.
  std::string end(const GenerateResult& result, const Tokenizer& tokenizer) const;

 private:
  const AnswerHead& head_;
  const GenerateRequest& request_;    // both must outlive the stream
  std::string open_, event_;          // an event up to its choices; the one under way
  const char* tail_;
};

inline constexpr std::string_view kStreamEnd = "data: [DONE]\n\n";

}  // namespace tealight
