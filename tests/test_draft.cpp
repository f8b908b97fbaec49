// Guessed tokens: the answer is that of plain decoding, bit for bit, and right guesses save steps.
#include <doctest/doctest.h>

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "src/task/draft.h"
#include "src/task/generate.h"
#include "src/task/scheduler.h"
#include "tests/alloc_count.h"
#include "tests/fixtures.h"

using namespace tealight;

namespace {

std::vector<TokenId> guess(const std::vector<TokenId>& text, size_t n, size_t& matching) {
  RepeatIndex index(text.size());
  for (TokenId id : text) index.push(id);
  std::vector<TokenId> out(n);
  matching = index.guess(out);
  return out;
}

std::unique_ptr<Lm> load(const char* name, int max_drafts, LoadOptions o = {}) {
  o.max_drafts = max_drafts;
  if (!o.threads) o.threads = 1;
  if (!o.ctx) o.ctx = 200;
  return Lm::load(fixture(name), o);
}

// A prompt whose end stands in it before.
GenerateRequest repeating(int64_t tokens, double temperature = 0) {
  GenerateRequest q;
  for (int i = 0; i < 5; i++)
    for (TokenId id : {40, 41, 42, 43, 44, 45, 60, 61, 47, 48}) q.prompt_ids.push_back(id + (i == 2));
  q.max_tokens = tokens;
  q.ignore_eos = true;
  q.sampling.temperature = temperature;
  q.seed = 5;
  return q;
}

struct Answer {
  GenerateResult result;
  std::string error;
  size_t held = 0;                     // what the next request finds
};

Answer answer(Lm& lm, const GenerateRequest& q, const TextSink& sink = {}, const GenerateControl& control = {}) {
  Generator g(lm);
  Answer a;
  try {
    a.result = g.generate(q, sink, control);
  } catch (const Error& e) {
    a.error = e.message;
    return a;
  }
  GenerateRequest again = q;
  again.prompt_ids.insert(again.prompt_ids.end(), 3, 1);
  again.max_tokens = 1;
  a.held = g.generate(again).cached_tokens;
  return a;
}

void check_same(const Answer& a, const Answer& b) {
  CHECK(a.error == b.error);
  CHECK(a.result.text == b.result.text);
  CHECK(a.result.finish == b.result.finish);
  CHECK(a.result.completion_tokens == b.result.completion_tokens);
  CHECK(a.held == b.held);
  REQUIRE(a.result.logprobs.size() == b.result.logprobs.size());
  for (size_t i = 0; i < a.result.logprobs.size(); i++) {
    CHECK(a.result.logprobs[i].id == b.result.logprobs[i].id);
    CHECK(a.result.logprobs[i].logprob == b.result.logprobs[i].logprob);
  }
}

constexpr const char* kModels[] = {"gguf/llama.Q4_0.gguf", "gguf/qwen3.Q4_1.gguf", "gguf/gemma3_text.Q8_0.gguf", "gguf/qwen3_moe.Q4_0.gguf",
                                   "gguf/falcon_new.Q8_0.gguf", "gguf/phi3_longrope.Q8_0.gguf", "models/llama_bf16", "models/gpt2"};

}  // namespace

TEST_CASE("drafts: text that repeats is found, the longest copy counts, of equals the latest") {
  size_t m = 0;
  CHECK(guess({1, 2, 3, 4, 5, 9, 2, 3}, 3, m) == std::vector<TokenId>{4, 5, 9});
  CHECK(m == 2);
  CHECK(guess({1, 2, 3, 4, 7, 2, 3, 5, 1, 2, 3}, 1, m) == std::vector<TokenId>{4});
  CHECK(m == 3);
  CHECK(guess({2, 3, 4, 7, 2, 3, 5, 8, 2, 3}, 1, m) == std::vector<TokenId>{5});
  guess({1, 2, 3, 4, 1}, 1, m);
  CHECK(m == 0);                       // one token is not enough
  guess({1, 2}, 1, m);
  CHECK(m == 0);
  guess({}, 1, m);
  CHECK(m == 0);
  CHECK(guess({1, 2, 1, 2, 1}, 5, m) == std::vector<TokenId>{2, 1, 2, 1, 2});   // a copy goes on with itself
  std::vector<TokenId> same(100, 7);
  CHECK(guess(same, 4, m) == std::vector<TokenId>{7, 7, 7, 7});
  CHECK(m == RepeatIndex::kLongest);
}

TEST_CASE("drafts: as many as their chances are worth") {
  DraftPace pace({0.1f, 0.5f, 0.6f, 0.8f, 0.97f});
  const std::vector<uint8_t> low(8, 0), high(8, 4);
  CHECK(pace.worth(low, 1) == 0);
  CHECK(pace.worth(high, 1) == 8);
  CHECK(pace.worth({}, 1) == 0);
  CHECK(pace.worth(std::vector<uint8_t>{2, 4, 4, 4, 4, 4}, 1) > 1);    // a doubtful one in front of sure ones
  CHECK(pace.cost(1) == doctest::Approx(0.45));
  CHECK(pace.cost(4) > 0.5);                   // rows that others have paid for cost their share
  CHECK(pace.worth(std::vector<uint8_t>(8, 2), 8) == 0);
  for (int i = 0; i < 20; i++) pace.learn(0, true);
  CHECK(pace.chance(0) > 0.7);
  CHECK(pace.worth(low, 1) > 0);
  for (int i = 0; i < 20; i++) pace.learn(4, false);
  CHECK(pace.worth(high, 1) == 0);
}

TEST_CASE("drafts: what a row costs is measured") {
  DraftPace pace({0.1f, 0.2f, 0.5f, 0.8f, 0.95f});
  const std::vector<uint8_t> kinds(8, 2);
  CHECK(pace.worth(kinds, 1) == 0);
  for (int i = 0; i < 100; i++) pace.timed(0, 1000), pace.timed(4, 1200), pace.timed(4, 1200);
  CHECK(pace.cost(1) < 0.15);
  CHECK(pace.worth(kinds, 1) >= 2);
  for (int i = 0; i < 100; i++) pace.timed(0, 1000), pace.timed(2, 3000), pace.timed(2, 3000);
  CHECK(pace.cost(1) > 0.7);
  CHECK(pace.worth(kinds, 1) == 0);
  for (int i = 0; i < 400; i++) pace.timed(0, 1000);      // forgotten
  CHECK(pace.cost(1) == doctest::Approx(0.45).epsilon(0.02));
}

TEST_CASE("drafts: rows that are evaluated together have the bits of one at a time, also after wrong guesses") {
  for (const char* name : kModels)
    for (int batch : {512, 1, 3}) {
      CAPTURE(name);
      CAPTURE(batch);
      auto lm = load(name, 0, {.batch = batch});
      auto one = lm->start(), many = lm->start();
      std::vector<TokenId> ids;
      for (int i = 0; i < 60; i++) ids.push_back(TokenId((i * 37 + 11) % 200 + 3));
      const size_t vocab = lm->vocab();
      for (size_t at = 0, step = 0; at < ids.size(); step++) {
        const std::vector<TokenId> wrong(std::min<size_t>(many->batch_room(), 4), 9);
        if (step % 2) many->eval_last(wrong, wrong.size(), 0), many->rewind(at);
        const size_t n = std::min({ids.size() - at, 1 + step % 6, many->batch_room()}), rows = std::max<size_t>(1, n - step % 2);
        const std::span<const float> l = many->eval_last(std::span(ids).subspan(at, n), rows, 0).all;
        REQUIRE(l.size() == rows * vocab);
        for (size_t i = 0; i < n; i++) {
          const std::span<const float> want = one->eval(std::span(ids).subspan(at + i, 1));
          if (i >= n - rows) REQUIRE(std::memcmp(want.data(), &l[(i - (n - rows)) * vocab], vocab * sizeof(float)) == 0);
        }
        at += n;
      }
    }
}

TEST_CASE("drafts: several sequences with different numbers of wanted rows in one pass") {
  auto lm = load("gguf/llama.Q8_0.gguf", 0, {.batch = 6});
  std::vector<std::unique_ptr<Sequence>> s;
  std::vector<std::vector<TokenId>> ids = {{5, 6, 7, 8}, {9}, {10, 11, 12, 13, 14, 15, 16}, {17, 18}};
  const size_t rows[] = {4, 1, 3, 1};
  std::vector<SequenceWork> work;
  for (size_t i = 0; i < ids.size(); i++) {
    s.push_back(lm->start());
    work.push_back({.sequence = s.back().get(), .ids = ids[i], .rows = rows[i]});
  }
  lm->eval(work);
  for (size_t i = 0; i < ids.size(); i++) {
    CHECK(!work[i].error);
    auto alone = lm->start();
    const std::span<const float> want = alone->eval_last(ids[i], rows[i], 0).all;
    REQUIRE(work[i].logits.all.size() == want.size());
    CHECK(std::memcmp(work[i].logits.all.data(), want.data(), want.size_bytes()) == 0);
  }
}

TEST_CASE("drafts: the same answer, greedy or with a seed, and log-probabilities") {
  size_t drafted = 0, accepted = 0;
  for (const char* name : kModels) {
    CAPTURE(name);
    auto plain = load(name, 0), some = load(name, 4), many = load(name, int(kMaxDrafts));
    many->copy_weights_now();          // the best logits of several rows are found by a search, where the head allows it
    for (int c = 0; c < 8; c++) {
      CAPTURE(c);
      GenerateRequest q = repeating(c == 1 ? 1000 : 100);   // 1000: the context ends it
      if (c == 2 || c == 3) q.sampling.temperature = 0.3;
      if (c == 3) q.sampling.repetition_penalty = 1.05, q.sampling.presence_penalty = 0.1, q.sampling.top_k = 10, q.sampling.top_p = 0.9;
      if (c == 4) q.ignore_eos = false, q.min_tokens = 20;
      if (c >= 5) q.sampling.temperature = 1;
      if (c >= 6) q.sampling.logit_bias = {{40, 60}, {41, c == 6 ? 0 : 60}};   // one token again and again, or two in turn by chance
      if (c % 2 == 0) q.sampling.top_logprobs = 2;
      const Answer want = answer(*plain, q), a = answer(*some, q), b = answer(*many, q);
      check_same(want, a);
      check_same(want, b);
      CHECK(want.result.drafted_tokens == 0);
      CHECK(a.result.accepted_tokens <= a.result.drafted_tokens);
      drafted += b.result.drafted_tokens, accepted += b.result.accepted_tokens;
      if (c == 6 && want.error.empty()) CHECK(b.result.accepted_tokens > 50);
    }
  }
  CHECK(accepted > 500);
  CHECK(drafted > accepted + 50);      // wrong ones were among them
}

TEST_CASE("drafts: every length of an answer, and every stop string, end it where they would") {
  auto plain = load("gguf/llama.Q8_0.gguf", 0), drafts = load("gguf/llama.Q8_0.gguf", 16);
  const std::string text = answer(*plain, repeating(60)).result.text;
  for (int n = 1; n < 40; n++) check_same(answer(*plain, repeating(n)), answer(*drafts, repeating(n)));
  for (size_t i = 0; i + 3 < text.size() && i < 60; i++) {
    GenerateRequest q = repeating(60);
    q.stop = {text.substr(i, 3)};
    if (q.stop[0].find('\xef') != std::string::npos) continue;   // pieces of a replacement character
    check_same(answer(*plain, q), answer(*drafts, q));
  }
}

TEST_CASE("drafts: cancelled, abandoned or out of time, the text is the beginning of the whole one") {
  auto plain = load("gguf/llama.Q8_0.gguf", 0), drafts = load("gguf/llama.Q8_0.gguf", 16);
  const GenerateRequest q = repeating(60);
  const std::string whole = answer(*plain, q).result.text;
  for (size_t length : {1, 7, 20, 50}) {
    const auto until = [&](Lm& lm, bool by_sink) {
      size_t n = 0;
      const TextSink sink = [&](std::string_view t) { return n += t.size(), !by_sink || n < length; };
      return answer(lm, q, sink, {.cancelled = [&] { return !by_sink && n >= length; }});
    };
    for (bool by_sink : {false, true}) {
      const Answer a = until(*plain, by_sink), b = until(*drafts, by_sink);
      CHECK(b.result.finish == Finish::cancelled);
      CHECK(a.result.text == b.result.text);
    }
  }
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  const int64_t now = int64_t(t.tv_sec) * 1'000'000 + t.tv_nsec / 1000;
  for (int64_t us : {1, 3000, 10'000}) {
    const Answer a = answer(*drafts, q, {}, {.cancelled = {}, .deadline_us = now + us});
    CHECK(a.result.finish == Finish::length);
    CHECK(whole.starts_with(a.result.text));
  }
}

TEST_CASE("drafts: a guess that cannot be evaluated is no fault of the request") {
  // Learned positions end before the context that was asked for.
  auto plain = load("models/gpt2", 0, {.ctx = 4000}), drafts = load("models/gpt2", 16, {.ctx = 4000});
  const int64_t positions = int64_t(plain->context_length()), prompt = int64_t(repeating(1).prompt_ids.size());
  REQUIRE(positions < 4000);
  for (int64_t more : {0, 1, 2}) {
    const GenerateRequest q = repeating(positions - prompt + more);
    Generator a(*plain), b(*drafts);
    std::string want, error, text, error2;
    try {
      want = a.generate(q).text;
    } catch (const Error& e) {
      error = e.message;
    }
    try {
      text = b.generate(q).text;
    } catch (const Error& e) {
      error2 = e.message;
    }
    CHECK(want == text);
    CHECK(error == error2);
  }
}

TEST_CASE("drafts: a model guesses for another one") {
  auto plain = load("gguf/llama.Q8_0.gguf", 0);
  for (const char* draft : {"gguf/llama.Q8_0.gguf", "gguf/llama.Q4_0.gguf", "gguf/llama_linear_rope.Q8_0.gguf"}) {
    CAPTURE(draft);
    auto lm = load("gguf/llama.Q8_0.gguf", 8, {.draft_model = fixture(draft)});
    for (double temperature : {0.0, 0.5}) {
      const GenerateRequest q = repeating(100, temperature);
      const Answer a = answer(*lm, q);
      check_same(answer(*plain, q), a);
      if (temperature == 0 && std::string_view(draft) == "gguf/llama.Q8_0.gguf") {
        CHECK(a.result.drafted_tokens > 0);
        CHECK(a.result.accepted_tokens == a.result.drafted_tokens);   // it is the same model
      }
    }
    check_same(answer(*plain, repeating(1000)), answer(*lm, repeating(1000)));   // the context ends it
  }
}

TEST_CASE("drafts: a model with another vocabulary is refused") {
  const auto error = [](const char* draft) {
    try {
      load("gguf/llama.Q8_0.gguf", 8, {.draft_model = fixture(draft)});
    } catch (const Error& e) {
      return e.message;
    }
    return std::string("no error");
  };
  for (const char* other : {"gguf/gpt2.Q8_0.gguf", "gguf/qwen2.Q8_0.gguf"}) {
    CAPTURE(other);
    CHECK(error(other).find("its vocabulary is another one") != std::string::npos);
    CHECK(error(other).find(other) != std::string::npos);
  }
}

TEST_CASE("drafts: after the first token none takes memory, whatever is guessed") {
  for (const std::string_view name : kModels)
    for (int threads : {1, 2})
      for (int c = 0; c < 3; c++) {
        if (!name.starts_with("gguf")) continue;   // without a tokenizer
        CAPTURE(std::string(name));
        CAPTURE(threads);
        CAPTURE(c);
        const bool model = c == 2 && name == "gguf/llama.Q4_0.gguf";
        auto lm = load(name.data(), c == 1 ? int(kMaxDrafts) : 8, {.threads = threads, .ctx = 600, .draft_model = model ? fixture("gguf/llama.Q8_0.gguf") : ""});
        GenerateRequest q = repeating(500, c && !model ? 1 : 0);
        if (c && !model) q.sampling.logit_bias = {{40, 60}, {41, 60}};       // two tokens in turn by chance: passes of all sizes
        uint64_t first = 0, last = 0;
        size_t pieces = 0;
        GenerateResult r;
        r = Generator(*lm).generate(q, [&](std::string_view) {
          last = g_allocated_bytes;
          if (++pieces == 1) first = last;
          return true;
        });
        CHECK(last == first);
        if (c == 0) continue;          // not all repeat themselves
        CHECK(pieces > 20);
        CHECK(r.drafted_tokens > 0);
      }
}

TEST_CASE("drafts: generations that run together") {
  auto plain = load("gguf/llama.Q8_0.gguf", 0), lm = load("gguf/llama.Q8_0.gguf", 8, {.threads = 2});
  struct Sink : GenerationSink {
    std::string text_;
    std::atomic<bool> over{false};
    void admitted(size_t) override {}
    bool text(std::string_view piece) override { return text_ += piece, true; }
    void done(const GenerateResult&) override { over = true; }
    void failed(const Error& e) override { text_ = e.message, over = true; }
  };
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 7; i++) {
    requests.push_back(repeating(20 + i * 11, i % 3 == 1 ? 0.4 : 0));
    requests.back().prompt_ids.resize(size_t(30 + i * 3));
    if (i % 2) requests.back().sampling.logit_bias = {{40, 60}};
  }
  for (int parallel : {1, 3}) {
    Scheduler scheduler(*lm, {.parallel = parallel, .queue = 100});
    std::vector<std::shared_ptr<Sink>> sinks;
    for (const GenerateRequest& q : requests) {
      sinks.push_back(std::make_shared<Sink>());
      scheduler.submit(q, sinks.back());
    }
    for (size_t i = 0; i < sinks.size(); i++) {
      while (!sinks[i]->over) usleep(1000);
      CHECK(sinks[i]->text_ == answer(*plain, requests[i]).result.text);
    }
    CHECK(scheduler.stats().drafted_tokens > 0);
    CHECK(scheduler.stats().accepted_tokens > 0);
  }
}
