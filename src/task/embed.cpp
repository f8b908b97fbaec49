#include "src/task/embed.h"

#include "src/base/base64.h"
#include "src/base/error.h"

namespace tealight {
namespace {

constexpr size_t kMaxInputs = 2048;    // as OpenAI's API

EmbedRequest::Input ids_of(Json array) {
  EmbedRequest::Input in;
  for (Json id : array.elements()) {
    const int64_t v = id.integer("input");
    if (v < 0 || v > INT32_MAX) fail(Code::request, "input: ", v, " is not a token id");
    in.ids.push_back(TokenId(v));
  }
  if (in.ids.empty()) fail(Code::request, "input: is empty");
  return in;
}

EmbedRequest read_request(Json r) {
  if (!r.is_object()) fail(Code::request, "expected a JSON object, got ", kind_name(r.kind()));
  EmbedRequest q;
  const Json input = r["input"];
  if (input.is_array() && input.size() > 0 && !input[size_t(0)].is_number()) {
    if (input.size() > kMaxInputs) fail(Code::request, "input: ", input.size(), " texts are more than ", kMaxInputs);
    for (Json e : input.elements()) q.inputs.push_back(e.is_array() ? ids_of(e) : EmbedRequest::Input{std::string(e.string("input")), {}});
  } else if (input.is_array()) {
    q.inputs.push_back(ids_of(input));
  } else {
    if (!input || input.is_null()) fail(Code::request, "input: missing; a text, token ids, or an array of these is needed");
    q.inputs.push_back({std::string(input.string("input")), {}});
  }
  if (const Json format = r["encoding_format"]; format && !format.is_null()) {
    const std::string_view word = format.string("encoding_format");
    q.base64 = word == "base64";
    if (!q.base64 && word != "float") fail(Code::request, "encoding_format: ", quoted(word), " is neither float nor base64");
  }
  if (const Json d = r["dimensions"]; d && !d.is_null()) fail(Code::unsupported, "dimensions: this value is not supported");
  return q;
}

}  // namespace

EmbedRequest parse_embed_request(Json request) {
  try {
    return read_request(request);
  } catch (const Error& e) {
    fail(Error(e.code == Code::format ? Code::request : e.code, e.message));   // format: a value of the wrong kind
  }
}

std::string embed_answer(Lm& lm, const EmbedRequest& request) {
  std::string out;
  JsonWriter w(out);
  w.begin_object().field("object", "list").key("data").begin_array();
  uint64_t tokens = 0;
  int index = 0;
  for (const EmbedRequest::Input& in : request.inputs) {
    const std::vector<TokenId> ids = in.ids.empty() ? lm.tokenizer().encode(in.text, {}) : in.ids;
    const std::vector<float> v = lm.embed(ids);
    tokens += ids.size();
    w.begin_object().field("object", "embedding").field("index", index++).key("embedding");
    if (request.base64) {
      w.value(base64({reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float)}));
    } else {
      w.begin_array();
      for (float x : v) w.value(double(x));
      w.end_array();
    }
    w.end_object();
  }
  w.end_array().field("model", lm.name());
  w.key("usage").begin_object().field("prompt_tokens", tokens).field("total_tokens", tokens).end_object().end_object();
  return out;
}

}  // namespace tealight
