// A request for text: the fields of OpenAI's chat completions, checked.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/nn/sampler.h"

namespace tealight {

struct GenerateRequest {
  std::string id;                    // JSON text of "id" (a string or a number); empty when there is none
  bool chat = false;                 // messages; else prompt
  std::string prompt;                // taken as it is, special tokens in it are recognized; or
  std::vector<TokenId> prompt_ids;   // the prompt as tokens, taken as they are
  std::string messages;              // JSON array for the chat template; every content is a string
  std::string tools;                 // JSON array for the chat template; empty when there are none
  std::string template_variables;    // JSON object: further variables for the template (chat_template_kwargs); may be empty
  SamplingOptions sampling;
  std::optional<uint64_t> seed;      // absent: a new one each time
  int64_t max_tokens = 0;            // 0: until an end token or a full context
  int64_t min_tokens = 0;            // end tokens cannot be chosen before
  bool ignore_eos = false;           // end tokens do not end the answer
  bool stream = false;
  bool stream_usage = false;         // stream_options.include_usage
  std::vector<std::string> stop;     // the answer ends before the first of these; never empty strings
  std::vector<std::string> unknown;  // names of fields that were ignored
  int64_t delay_ms = 0;              // x_delay_ms and x_fail_after, for tests: a pause after each token; an error after so many
  int64_t fail_after = 0;
};

struct RequestLimits {
  static constexpr size_t max_line_bytes = 16 << 20;
  static constexpr size_t max_messages = 10'000;
  static constexpr size_t max_stops = 16, max_stop_bytes = 1000;
  static constexpr size_t max_logit_biases = 10'000;
  static constexpr int64_t max_tokens = 100'000'000;
};

// The JSON text of a request's "id", or "" when it has none that can be echoed. Never fails.
std::string request_id(Json request);

// Errors: Code::request, "FIELD: what is wrong and what it should be".
GenerateRequest parse_request(Json request);

// Fields that are put under those of every request, from text: checked like a request's, without the fields that belong to one
// request alone (id, messages, prompt). Returns the object's text. Errors: Code::request, Code::format, beginning with `what`.
std::string check_defaults(std::string_view text, std::string_view what);
// The request with `defaults` (of check_defaults) for the fields that it does not have; itself when it is no object.
JsonDoc with_defaults(std::string_view defaults, Json request);

// One message as `messages` holds them.
std::string message_json(std::string_view role, std::string_view content);

}  // namespace tealight
