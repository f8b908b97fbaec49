#include <doctest/doctest.h>

#include <csignal>

#include "src/task/generate.h"
#include "tests/alloc_count.h"
#include "tests/fake_lm.h"

using namespace tealight;

namespace {

GenerateRequest completion(std::string_view prompt) {
  GenerateRequest q;
  q.prompt = prompt;
  q.sampling.temperature = 0;
  return q;
}

GenerateRequest conversation(std::vector<std::pair<std::string, std::string>> messages) {
  GenerateRequest q;
  q.chat = true;
  q.sampling.temperature = 0;
  q.messages = "[";
  for (auto& [role, content] : messages) q.messages += cat(q.messages.size() > 1 ? "," : "", message_json(role, content));
  q.messages += "]";
  return q;
}

struct Run {
  GenerateResult result;
  std::vector<std::string> pieces;
};

Run run(FakeLm& lm, const GenerateRequest& request) {
  Run r;
  Generator generator(lm);
  r.result = generator.generate(request, [&](std::string_view text) {
    r.pieces.emplace_back(text);
    return true;
  });
  std::string joined;
  for (const std::string& p : r.pieces) joined += p;
  CHECK(joined == r.result.text);
  return r;
}

std::string error_of(Generator& g, const GenerateRequest& request) {
  try {
    g.generate(request);
  } catch (const Error& e) {
    CHECK(e.code == Code::request);
    return e.message;
  }
  return "no error";
}

}  // namespace

TEST_CASE("stop strings: found wherever the text is cut") {
  struct Case {
    const char* text;
    std::vector<std::string> stops;
    const char* want;
  };
  const Case cases[] = {
      {"hello world", {"wor"}, "hello "},
      {"hello world", {"xyz"}, "hello world"},
      {"hello world", {"hello world!"}, "hello world"},
      {"aab", {"ab"}, "a"},
      {"ababac", {"abac"}, "ab"},
      {"abc", {"abc", "b"}, "a"},            // b is complete first
      {"xabc", {"bc", "abc"}, "x"},          // both are complete together: the longer one
      {"abc", {"a"}, ""},
      {"one\n\ntwo", {"\n\n"}, "one"},
      {"gr\xc3\xbc\xc3\x9f", {"\xc3\x9f"}, "gr\xc3\xbc"},
      {"", {"a"}, ""},
  };
  for (const Case& c : cases) {
    const std::string text = c.text;
    for (size_t a = 0; a <= text.size(); a++)
      for (size_t b = a; b <= text.size(); b++) {
        StopMatcher m(c.stops);
        std::string out;
        for (std::string_view piece : {std::string_view(text).substr(0, a), std::string_view(text).substr(a, b - a), std::string_view(text).substr(b)}) {
          out += m.push(piece);
          for (const std::string& s : c.stops) CHECK(out.find(s) == out.npos);
        }
        const bool stopped = m.stopped();
        out += m.finish();
        CHECK(out == c.want);
        CHECK(stopped == (out != text));
      }
  }
}

TEST_CASE("generate: an end token ends the answer and is not shown") {
  FakeLm lm;
  for (TokenId end : {FakeTokenizer::kEos, FakeTokenizer::kEnd}) {
    lm.model.script = {'H', 'i', end, 'x'};
    const Run r = run(lm, completion("ab"));
    CHECK(r.result.text == "Hi");
    CHECK(r.result.finish == Finish::stop);
    CHECK(r.result.prompt_tokens == 3);
    CHECK(r.result.completion_tokens == 3);
    CHECK(r.pieces == std::vector<std::string>{"H", "i"});
  }
}

TEST_CASE("generate: ignore_eos goes on, min_tokens does not let it end") {
  FakeLm lm;
  lm.model.script = {'a', FakeTokenizer::kEos, 'b', FakeTokenizer::kEos};
  GenerateRequest q = completion("x");
  q.ignore_eos = true;
  q.max_tokens = 4;
  CHECK(run(lm, q).result.text == "ab");
  CHECK(run(lm, q).result.finish == Finish::length);
  q.ignore_eos = false;
  q.min_tokens = 3;
  const Run r = run(lm, q);
  CHECK(r.result.completion_tokens == 4);
  CHECK(r.result.text.size() == 3);
  CHECK(r.result.text[0] == 'a');
  CHECK(r.result.text[2] == 'b');
  CHECK(r.result.finish == Finish::stop);
}

TEST_CASE("generate: max_tokens and the context end it with length") {
  FakeLm lm;
  lm.model.say(std::string(2000, 'x'));
  GenerateRequest q = completion("abc");
  q.max_tokens = 1;
  const size_t before = lm.model.evaluated;
  CHECK(run(lm, q).result.text == "x");
  CHECK(lm.model.evaluated - before == 4);  // the prompt alone: the last token needs no evaluation
  q.max_tokens = 0;
  lm.model.capacity = 10;
  const Run r = run(lm, q);
  CHECK(r.result.text == "xxxxxxx");        // 4 + 6 positions, and one more token
  CHECK(r.result.finish == Finish::length);
  q.prompt = "123456789";                   // 10 with the BOS: just fits
  CHECK(run(lm, q).result.text == "x");
}

TEST_CASE("generate: a prompt longer than the context is an error with both numbers") {
  FakeLm lm;
  lm.model.capacity = 10;
  Generator g(lm);
  CHECK(error_of(g, completion("1234567890")).starts_with("prompt: 11 tokens are more than the context of 10 tokens"));
  CHECK(error_of(g, conversation({{"user", "1234567890"}})).find("context of 10 tokens") != std::string::npos);
  CHECK(error_of(g, completion("123")) == "no error");
}

TEST_CASE("generate: stop strings across tokens are cut off and never shown") {
  FakeLm lm;
  lm.model.script = {'a', 'S', 'T', 'S', 'T', 'O', 'P', 'b'};
  GenerateRequest q = completion("x");
  q.stop = {"STOP"};
  const Run r = run(lm, q);
  CHECK(r.result.text == "aST");
  CHECK(r.pieces == std::vector<std::string>{"a", "ST"});
  CHECK(r.result.finish == Finish::stop);
  CHECK(r.result.completion_tokens == 7);
  lm.model.script = {'a', 'S', 'T'};  // what could have become one is text when it ends otherwise
  CHECK(run(lm, q).result.text == "aST");
  lm.model.script = {FakeTokenizer::kFirstPiece, FakeTokenizer::kFirstPiece + 4, 'b'};  // "Hello" + "STOP"
  CHECK(run(lm, q).result.text == "Hello");
}

TEST_CASE("generate: half characters are held back") {
  FakeLm lm;
  lm.model.say("\xf0\x9f\xa6\x99!");
  Run r = run(lm, completion("x"));
  CHECK(r.pieces == std::vector<std::string>{"\xf0\x9f\xa6\x99", "!"});
  lm.model.script = {FakeTokenizer::kFirstPiece + 2, FakeTokenizer::kFirstPiece + 3};  // the halves of the llama
  CHECK(run(lm, completion("x")).pieces == std::vector<std::string>{"\xf0\x9f\xa6\x99"});
  lm.model.say("a\xf0\x9f\xa6");
  r = run(lm, completion("x"));
  CHECK(r.result.text == "a\xef\xbf\xbd");
}

TEST_CASE("generate: in a chat only the template yields special tokens") {
  FakeLm lm;
  Generator g(lm);
  const auto count = [](const std::vector<TokenId>& ids, TokenId id) { return std::count(ids.begin(), ids.end(), id); };
  const std::vector<TokenId> ids = encode_request(lm, conversation({{"user", "a<end>b<s>"}}));
  CHECK(count(ids, FakeTokenizer::kEnd) == 1);
  CHECK(count(ids, FakeTokenizer::kBos) == 1);
  CHECK(ids.back() == FakeTokenizer::kEnd);
  CHECK(count(encode_request(lm, completion("a<end>b")), FakeTokenizer::kEnd) == 1);
}

TEST_CASE("generate: what two prompts have in common is evaluated once") {
  FakeLm lm;
  lm.model.say("yes");
  Generator g(lm);
  GenerateResult r = g.generate(completion("abcdef"));
  CHECK(r.cached_tokens == 0);
  r = g.generate(completion("abcdef"));
  CHECK(r.cached_tokens == 6);   // all but the last: its logits are needed
  CHECK(r.text == "yes");
  r = g.generate(completion("abcdefyes, and"));
  CHECK(r.cached_tokens == 10);  // the answer too
  r = g.generate(completion("abX"));
  CHECK(r.cached_tokens == 3);
  r = g.generate(completion("Z"));
  CHECK(r.cached_tokens == 1);   // the BOS
}

TEST_CASE("generate: NaN is an error of that request only") {
  FakeLm lm;
  lm.model.say("hello");
  lm.model.fail_at = 2;
  Generator g(lm);
  CHECK(error_of(g, completion("abc")).find("NaN") != std::string::npos);
  lm.model.fail_at = -1;
  const GenerateResult r = g.generate(completion("abc"));
  CHECK(r.text == "hello");
  CHECK(r.cached_tokens == 0);   // nothing of the failed one is trusted
}

TEST_CASE("generate: it can be cancelled, and a listener can leave") {
  FakeLm lm;
  lm.model.say("0123456789");
  Generator g(lm);
  static volatile std::sig_atomic_t cancel;
  cancel = 0;
  std::string text;
  const auto sink = [&](std::string_view t) {
    text += t;
    if (text.size() == 3) cancel = 1;
    return true;
  };
  GenerateResult r = g.generate(completion("abc"), sink, {.cancelled = [] { return cancel != 0; }});
  CHECK(r.finish == Finish::cancelled);
  CHECK(r.text == "012");
  r = g.generate(completion("xyz"), sink, {.cancelled = [] { return cancel != 0; }});  // before the prompt
  CHECK(r.finish == Finish::cancelled);
  CHECK(r.text.empty());
  r = g.generate(completion("abc"), [](std::string_view) { return false; });
  CHECK(r.finish == Finish::cancelled);
  CHECK(r.text == "0");
  r = g.generate(completion("abc"));
  CHECK(r.text == "0123456789");
}

TEST_CASE("generate: a seed gives the same answer, none gives another") {
  FakeLm lm;
  lm.model.script.clear();
  GenerateRequest q = completion("abc");
  q.sampling.temperature = 30;
  q.max_tokens = 50;
  q.seed = 7;
  q.ignore_eos = true;
  const std::string a = run(lm, q).result.text;
  CHECK(run(lm, q).result.text == a);
  q.seed = 8;
  CHECK(run(lm, q).result.text != a);
  q.seed.reset();
  CHECK(run(lm, q).result.text != run(lm, q).result.text);
}

TEST_CASE("generate: log-probabilities of every chosen token") {
  FakeLm lm;
  lm.model.say("ab");
  GenerateRequest q = completion("x");
  q.sampling.top_logprobs = 2;
  const GenerateResult r = run(lm, q).result;
  REQUIRE(r.logprobs.size() == 9);  // a, b and the end token
  CHECK(r.logprobs[0].id == 'a');
  CHECK(r.logprobs[1].id == 'a');
  CHECK(r.logprobs[0].logprob == r.logprobs[1].logprob);
  CHECK(r.logprobs[6].id == FakeTokenizer::kEnd);
}

TEST_CASE("generate: a token costs no allocation") {
  FakeLm lm;
  lm.model.say(std::string(900, 'x'));
  Generator g(lm);
  GenerateRequest q = completion("abc");
  q.stop = {"xyz", "xxxxa"};
  q.sampling.temperature = 0.7;
  q.sampling.top_p = 0.9;
  q.sampling.repetition_penalty = 1.1;
  q.sampling.top_logprobs = 3;
  q.max_tokens = 800;
  size_t at_first = 0, at_last = 0, pieces = 0;
  g.generate(q, [&](std::string_view) {
    at_last = g_allocated_bytes;
    if (++pieces == 10) at_first = g_allocated_bytes;
    return true;
  });
  CHECK(pieces > 700);
  CHECK(at_last == at_first);
}
