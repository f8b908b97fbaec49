#include "src/host/embeddings.h"

#include <new>

#include "src/base/base64.h"
#include "src/base/error.h"
#include "src/host/openai.h"

namespace tealight {
namespace {

constexpr size_t kMaxInputs = 2048;    // OpenAI's limit
constexpr std::string_view kJson = "application/json";

}  // namespace

EmbeddingJob::EmbeddingJob(Json r, Scheduler& scheduler, std::shared_ptr<HttpReply> reply) : scheduler_(scheduler), reply_(std::move(reply)) {
  if (!r.is_object()) fail(Code::request, "expected a JSON object, got ", kind_name(r.kind()));
  const Json input = r["input"];
  // A text, texts, token ids, or arrays of token ids.
  if (input.is_array() && input.size() > 0 && !input[size_t(0)].is_number()) {
    if (input.size() > kMaxInputs) fail(Code::request, "input: ", input.size(), " texts are more than ", kMaxInputs);
    for (Json e : input.elements()) add(e);
  } else {
    add(input);
  }
  if (const Json f = r["encoding_format"]; f && !f.is_null()) {
    base64_ = f.is_string() && f.string("") == "base64";
    if (!base64_ && !(f.is_string() && f.string("") == "float")) fail(Code::request, "encoding_format: expected \"float\" or \"base64\"");
  }
  if (const Json d = r["dimensions"]; d && !d.is_null()) dimensions_ = d.integer("dimensions");
}

void EmbeddingJob::add(Json input) {
  Input in;
  if (input.is_string()) in.text = input.string("input");
  else if (!input.is_array()) fail(Code::request, "input: expected a text, token ids, or an array of these, got ", kind_name(input.kind()));
  for (Json id : input.elements()) {
    const int64_t x = id.integer("input");
    if (x < 0 || x > INT32_MAX) fail(Code::request, "input: ", x, " is not a token id");
    in.ids.push_back(TokenId(x));
  }
  if (in.text.empty() && in.ids.empty()) fail(Code::request, "input: is empty");
  inputs_.push_back(std::move(in));
}

bool EmbeddingJob::submit() {
  return scheduler_.submit_task([self = shared_from_this()](Lm& lm) { self->run(lm); });
}

void EmbeddingJob::embed(Lm& lm, const Input& input) {
  const std::vector<TokenId> ids = input.ids.empty() ? lm.tokenizer().encode(input.text, {}) : input.ids;
  if (ids.size() > lm.context_length())
    fail(Code::request, "input: ", ids.size(), " tokens are more than the context of ", lm.context_length(), " tokens");
  const std::vector<float> v = lm.embed(ids);
  if (dimensions_ && dimensions_ != int64_t(v.size())) fail(Code::unsupported, "dimensions: this model has ", v.size());
  tokens_ += ids.size();
  if (!data_.empty()) data_ += ',';
  JsonWriter w(data_);
  w.begin_object().field("object", "embedding").field("index", uint64_t(next_)).key("embedding");
  if (base64_) {
    w.value(base64({reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float)}));   // little-endian, as the machines are
  } else {
    w.begin_array();
    for (float x : v) w.value(double(x));
    w.end_array();
  }
  w.end_object();
}

void EmbeddingJob::run(Lm& lm) {
  ApiError error;
  try {
    while (next_ < inputs_.size()) {
      if (reply_->gone()) return;
      embed(lm, inputs_[next_]);
      // To the end of the queue; where it is full, or the server ends, at once.
      if (++next_ < inputs_.size() && submit()) return;
    }
    std::string out = cat("{\"object\":\"list\",\"data\":[", data_, "],");
    JsonWriter w(out);
    w.key("model").value(lm.name()).key("usage").begin_object();
    w.field("prompt_tokens", uint64_t(tokens_)).field("total_tokens", uint64_t(tokens_)).end_object();
    out += '}';
    return reply_->send(200, kJson, out);
  } catch (const Error& e) {
    error = api_error(e);
  } catch (const std::bad_alloc&) {
    error = api_error(Error(Code::memory, "not enough memory for this request; make it shorter"));
  }
  reply_->send(error.status, kJson, error.json());
}

}  // namespace tealight
