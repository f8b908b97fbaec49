#include <doctest/doctest.h>

#include "src/base/error.h"
#include "src/task/request.h"

using namespace tealight;

namespace {

GenerateRequest parse(std::string_view text) {
  const JsonDoc doc = JsonDoc::parse(text, "test");
  return parse_request(doc.root());
}

// The message of the error, which must be one of the request.
std::string error_of(std::string_view text) {
  try {
    parse(text);
  } catch (const Error& e) {
    CHECK(e.code == Code::request);
    return e.message;
  }
  return "no error";
}

}  // namespace

TEST_CASE("request: defaults are those of the OpenAI API") {
  const GenerateRequest q = parse(R"({"prompt":"a"})");
  CHECK(!q.chat);
  CHECK(q.prompt == "a");
  CHECK(q.sampling.temperature == 1);
  CHECK(q.sampling.top_p == 1);
  CHECK(q.sampling.top_k == 0);
  CHECK(q.sampling.top_logprobs == -1);
  CHECK(!q.seed);
  CHECK(q.max_tokens == 0);
  CHECK(!q.stream);
  CHECK(q.id.empty());
  CHECK(q.unknown.empty());
}

TEST_CASE("request: every field is read") {
  const GenerateRequest q = parse(
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"n"}],
          "id":"x","max_tokens":5,"temperature":0.5,"top_p":0.25,"top_k":3,"min_p":0.125,"typical_p":0.75,"repetition_penalty":1.5,
          "frequency_penalty":-1,"presence_penalty":2,"logit_bias":{"7":-100,"8":1.5},"seed":-1,"stop":["a","bc"],"stream":true,
          "stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":4,"n":1,"ignore_eos":true,"min_tokens":2,
          "tools":[{"type":"function"}],"chat_template_kwargs":{"enable_thinking":false},"model":"m","user":"u","foo":1,"bar":2})");
  CHECK(q.chat);
  CHECK(q.messages == R"([{"role":"system","content":"s"},{"role":"user","name":"n","content":"a\nb"}])");
  CHECK(q.tools == R"([{"type":"function"}])");
  CHECK(q.template_variables == R"({"enable_thinking":false})");
  CHECK(q.id == "\"x\"");
  CHECK(q.max_tokens == 5);
  CHECK(q.min_tokens == 2);
  const SamplingOptions& s = q.sampling;
  CHECK(s.temperature == 0.5);
  CHECK(s.top_p == 0.25);
  CHECK(s.top_k == 3);
  CHECK(s.min_p == 0.125);
  CHECK(s.typical_p == 0.75);
  CHECK(s.repetition_penalty == 1.5);
  CHECK(s.frequency_penalty == -1);
  CHECK(s.presence_penalty == 2);
  CHECK(s.logit_bias == std::vector<std::pair<TokenId, double>>{{7, -100}, {8, 1.5}});
  CHECK(s.top_logprobs == 4);
  CHECK(*q.seed == ~uint64_t(0));
  CHECK(q.stop == std::vector<std::string>{"a", "bc"});
  CHECK(q.stream);
  CHECK(q.ignore_eos);
  CHECK(q.unknown == std::vector<std::string>{"foo", "bar"});
}

TEST_CASE("request: forms that are allowed") {
  CHECK(parse(R"({"prompt":""})").prompt.empty());
  CHECK(parse(R"({"prompt":["a"]})").prompt == "a");
  CHECK(parse(R"({"prompt":[3,1,2]})").prompt_ids == std::vector<TokenId>{3, 1, 2});
  CHECK(parse(R"({"prompt":[[3]]})").prompt_ids == std::vector<TokenId>{3});
  CHECK(parse(R"({"prompt":"a","stream_options":{"include_usage":true}})").stream_usage);
  CHECK(parse(R"({"prompt":"a","id":7})").id == "7");
  CHECK(parse(R"({"prompt":"a","id":null,"temperature":null,"stop":null,"seed":null,"max_tokens":null})").id.empty());
  CHECK(parse(R"({"prompt":"a","max_tokens":3,"max_completion_tokens":4})").max_tokens == 4);
  CHECK(parse(R"({"prompt":"a","max_tokens":3.0})").max_tokens == 3);
  CHECK(parse(R"({"prompt":"a","stop":"x"})").stop.size() == 1);
  CHECK(parse(R"({"prompt":"a","stop":[]})").stop.empty());
  CHECK(parse(R"({"prompt":"a","top_k":-1})").sampling.top_k == 0);
  CHECK(parse(R"({"prompt":"a","seed":18446744073709551615})").seed == ~uint64_t(0));
  CHECK(parse(R"({"prompt":"a","logprobs":3})").sampling.top_logprobs == 3);
  CHECK(parse(R"({"prompt":"a","logprobs":0})").sampling.top_logprobs == 0);
  CHECK(parse(R"({"prompt":"a","logprobs":false})").sampling.top_logprobs == -1);
  CHECK(parse(R"({"prompt":"a","logprobs":true})").sampling.top_logprobs == 0);
  CHECK(parse(R"({"messages":[{"role":"assistant","content":null,"tool_calls":[]}],"tools":[]})").messages ==
        R"([{"role":"assistant","tool_calls":[],"content":null}])");
  CHECK(parse(R"({"messages":[{"role":"user","content":[]}]})").messages == R"([{"role":"user","content":""}])");
}

TEST_CASE("request: what is wrong is named, with what it should be") {
  const std::pair<const char*, const char*> cases[] = {
      {R"([])", "expected a JSON object, got an array"},
      {R"("x")", "expected a JSON object, got a string"},
      {R"({})", "messages: missing; give messages (an array) or prompt (a string)"},
      {R"({"prompt":null})", "messages: missing"},
      {R"({"prompt":"a","messages":[]})", "messages, prompt: give one of the two"},
      {R"({"prompt":["a","b"]})", "prompt: 2 prompts in one request; only one is supported"},
      {R"({"prompt":[]})", "prompt: is an empty array"},
      {R"({"prompt":[[]]})", "prompt: is an empty array"},
      {R"({"prompt":[1,-1]})", "prompt: -1 is not a token id"},
      {R"({"prompt":[1,"a"]})", "prompt: expected an integer, got a string"},
      {R"({"prompt":{}})", "prompt: expected a string, got an object"},
      {R"({"prompt":"a","x_delay_ms":1})", "x_delay_ms, x_fail_after: only for tests"},
      {R"({"messages":{}})", "messages: expected an array, got an object"},
      {R"({"messages":[]})", "messages: is empty"},
      {R"({"messages":["hi"]})", "messages[0]: expected an object, got a string"},
      {R"({"messages":[{"content":"a"}]})", "messages[0].role: expected a string, got nothing"},
      {R"({"messages":[{"role":"","content":"a"}]})", "messages[0].role: is empty"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"user"}]})", "messages[1].content: missing"},
      {R"({"messages":[{"role":"user","content":5}]})", "messages[0].content: expected a string or an array of text parts, got an integer"},
      {R"({"messages":[{"role":"user","content":["a"]}]})", "messages[0].content[0]: expected an object"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", "messages[0].content[0].type: \"image_url\" is not supported"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0].content[0].text: expected a string, got nothing"},
      {R"({"prompt":"a","temperature":"hot"})", "temperature: expected a number, got a string"},
      {R"({"prompt":"a","temperature":-1})", "temperature: -1 is not a number from 0 to 100"},
      {R"({"prompt":"a","top_p":1.5})", "top_p: 1.5 is not a number from 0 to 1"},
      {R"({"prompt":"a","min_p":-0.5})", "min_p: -0.5"},
      {R"({"prompt":"a","typical_p":2})", "typical_p: 2"},
      {R"({"prompt":"a","top_k":1.5})", "top_k: expected an integer, got a number"},
      {R"({"prompt":"a","top_k":-2})", "top_k: -2"},
      {R"({"prompt":"a","repetition_penalty":0})", "repetition_penalty: 0"},
      {R"({"prompt":"a","frequency_penalty":3})", "frequency_penalty: 3"},
      {R"({"prompt":"a","presence_penalty":-3})", "presence_penalty: -3"},
      {R"({"prompt":"a","logit_bias":[1]})", "logit_bias: expected an object"},
      {R"({"prompt":"a","logit_bias":{"x":1}})", "logit_bias: \"x\" is not a token id"},
      {R"({"prompt":"a","logit_bias":{"-1":1}})", "logit_bias: \"-1\" is not a token id"},
      {R"({"prompt":"a","logit_bias":{"99999999999":1}})", "logit_bias: \"99999999999\" is not a token id"},
      {R"({"prompt":"a","logit_bias":{"5":101}})", "logit_bias.5: 101"},
      {R"({"prompt":"a","logit_bias":{"5":"x"}})", "logit_bias.5: expected a number, got a string"},
      {R"({"prompt":"a","seed":"x"})", "seed: expected an integer"},
      {R"({"prompt":"a","seed":1.5})", "seed: expected an integer"},
      {R"({"prompt":"a","stop":5})", "stop: expected a string, got an integer"},
      {R"({"prompt":"a","stop":[5]})", "stop: expected a string, got an integer"},
      {R"({"prompt":"a","stop":""})", "stop: a string of 0 bytes"},
      {R"({"prompt":"a","stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"]})", "stop: 17 strings are more than 16"},
      {R"({"prompt":"a","max_tokens":0})", "max_tokens: 0 is not a whole number from 1"},
      {R"({"prompt":"a","max_tokens":1e300})", "max_tokens: expected an integer"},
      {R"({"prompt":"a","max_completion_tokens":-5})", "max_completion_tokens: -5"},
      {R"({"prompt":"a","max_tokens":5,"min_tokens":6})", "min_tokens: 6 is more than max_tokens (5)"},
      {R"({"prompt":"a","stream":1})", "stream: expected a boolean"},
      {R"({"prompt":"a","stream_options":1})", "stream_options: expected an object"},
      {R"({"prompt":"a","stream_options":{"include_usage":1}})", "include_usage: expected a boolean"},
      {R"({"prompt":"a","logprobs":"yes"})", "logprobs: expected a boolean"},
      {R"({"prompt":"a","logprobs":21})", "logprobs: 21"},
      {R"({"prompt":"a","logprobs":true,"top_logprobs":21})", "top_logprobs: 21"},
      {R"({"prompt":"a","top_logprobs":2})", "top_logprobs: needs \"logprobs\": true"},
      {R"({"prompt":"a","n":2})", "n: 2 is not a whole number from 1 to 1"},
      {R"({"prompt":"a","ignore_eos":0})", "ignore_eos: expected a boolean"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":{}})", "tools: expected an array"},
      {R"({"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":[]})", "chat_template_kwargs: expected an object"},
      {R"({"prompt":"a","id":[1]})", "id: expected a string or a number, got an array"},
  };
  for (auto [text, want] : cases) {
    INFO(text);
    const std::string got = error_of(text);
    INFO(got);
    CHECK(got.starts_with(want));
  }
}

TEST_CASE("request: counts are limited") {
  std::string many = R"({"messages":[)";
  for (size_t i = 0; i <= RequestLimits::max_messages; i++) many += cat(i ? "," : "", R"({"role":"user","content":"a"})");
  CHECK(error_of(many + "]}").starts_with("messages: 10001 are more than 10000"));
  std::string bias = R"({"prompt":"a","logit_bias":{)";
  for (size_t i = 0; i <= RequestLimits::max_logit_biases; i++) bias += cat(i ? "," : "", "\"", i, "\":1");
  CHECK(error_of(bias + "}}").starts_with("logit_bias: 10001 tokens are more than 10000"));
  CHECK(error_of(R"({"prompt":"a","stop":")" + std::string(1001, 'x') + "\"}").starts_with("stop: a string of 1001 bytes"));
  std::string unknown = R"({"prompt":"a")";
  for (int i = 0; i < 1000; i++) unknown += cat(",\"f", i, "\":1");
  CHECK(parse(unknown + "}").unknown.size() == 100);
}

TEST_CASE("request: the id is found in requests that are wrong") {
  const auto id = [](std::string_view text) { return request_id(JsonDoc::parse(text, "t").root()); };
  CHECK(id(R"({"id":"a\"b"})") == R"("a\"b")");
  CHECK(id(R"({"id":1.5})") == "1.5");
  CHECK(id(R"({"id":{}})").empty());
  CHECK(id(R"([1])").empty());
}
