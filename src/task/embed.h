// A request for embeddings: the fields of OpenAI's API.
#pragma once
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/task/lm.h"

namespace tealight {

struct EmbedRequest {
  struct Input {
    std::string text;
    std::vector<TokenId> ids;          // instead of the text, where they are not empty
  };
  std::vector<Input> inputs;           // at least one
  bool base64 = false;                 // vectors as base64 of little-endian f32, not as arrays
};

// Errors: Code::request, Code::unsupported, "FIELD: what is wrong and what it should be".
EmbedRequest parse_embed_request(Json request);

// {"object":"list","data":[{"object":"embedding","index":0,"embedding":...}, ...],"model":...,"usage":{...}}
// Errors: Code::unsupported where the model makes none; Code::request for an input that is empty or too long.
std::string embed_answer(Lm& lm, const EmbedRequest& request);

}  // namespace tealight
