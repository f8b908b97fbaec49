// Many generations at once: each gets the answer that it would get alone.
#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <unistd.h>
#include <vector>

#include "src/task/scheduler.h"
#include "tests/fake_lm.h"
#include "tests/fixtures.h"

using namespace tealight;

namespace {

struct Collect : GenerationSink {
  std::mutex mutex;
  std::condition_variable changed;
  std::string text_, error;
  size_t prompt_tokens = 0, cached = 0;
  bool over = false;
  Finish finish = Finish::stop;
  std::atomic<bool> listens{true};

  void admitted(size_t n) override { prompt_tokens = n; }
  bool text(std::string_view piece) override {
    const std::lock_guard lock(mutex);
    text_ += piece;
    changed.notify_all();
    return listens;
  }
  void done(const GenerateResult& r) override { close(r.finish, r.cached_tokens, ""); }
  void failed(const Error& e) override { close(Finish::stop, 0, e.message); }
  void close(Finish f, size_t c, std::string e) {
    const std::lock_guard lock(mutex);
    CHECK(!over);
    finish = f;
    cached = c;
    error = std::move(e);
    over = true;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return over; });
  }
  void wait_text() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return over || !text_.empty(); });
  }
};

GenerateRequest request(std::string prompt, int64_t tokens) {
  GenerateRequest q;
  q.prompt = std::move(prompt);
  q.max_tokens = tokens;
  q.ignore_eos = true;
  q.sampling.temperature = 0;
  return q;
}

}  // namespace

TEST_CASE("scheduler: every answer is the one that the request gets alone") {
  auto lm = Lm::load(fixture("gguf/llama.Q8_0.gguf"), {.threads = 2, .ctx = 256});
  std::vector<GenerateRequest> requests;
  std::vector<std::string> want;
  for (int i = 0; i < 12; i++) {
    requests.push_back(request(cat("The number ", i, " and then ", std::string(size_t(i * 9), 'x')), 5 + i * 3));
    if (i % 3 == 1) requests.back().sampling.temperature = 1, requests.back().seed = uint64_t(i);
    Generator alone(*lm);
    want.push_back(alone.generate(requests.back()).text);
  }
  Scheduler scheduler(*lm, {.parallel = 4, .queue = 100});
  std::vector<std::shared_ptr<Collect>> sinks;
  for (const GenerateRequest& q : requests) {
    sinks.push_back(std::make_shared<Collect>());
    CHECK(scheduler.submit(q, sinks.back()) != 0);
  }
  for (size_t i = 0; i < sinks.size(); i++) {
    sinks[i]->wait();
    CHECK(sinks[i]->error == "");
    CHECK(sinks[i]->text_ == want[i]);
    CHECK(sinks[i]->finish == Finish::length);
  }
  CHECK(scheduler.stats().done == requests.size());
  CHECK(scheduler.stats().completion_tokens == [] { size_t n = 0; for (int i = 0; i < 12; i++) n += size_t(5 + i * 3); return n; }());
}

TEST_CASE("scheduler: a conversation that goes on finds its sequence") {
  auto lm = Lm::load(fixture("gguf/llama.Q8_0.gguf"), {.threads = 1, .ctx = 256});
  Scheduler scheduler(*lm, {.parallel = 3, .queue = 10});
  const std::string turn = "A rather long beginning of a conversation ";
  auto first = std::make_shared<Collect>(), other = std::make_shared<Collect>(), second = std::make_shared<Collect>();
  scheduler.submit(request(turn, 4), first);
  first->wait();
  scheduler.submit(request("Something else altogether", 4), other);
  other->wait();
  scheduler.submit(request(turn + "and its next turn", 4), second);
  second->wait();
  CHECK(second->cached >= first->prompt_tokens - 1);
  CHECK(other->cached <= 1);
}

TEST_CASE("scheduler: prompts that begin alike are evaluated once, also at the same time") {
  auto lm = Lm::load(fixture("gguf/llama.Q8_0.gguf"), {.threads = 1, .ctx = 4000});
  std::string system;
  for (int i = 0; i < 60; i++) system += cat("Rule ", i, " of the house. ");
  std::vector<std::string> want;
  for (int i = 0; i < 3; i++) want.push_back(Generator(*lm).generate(request(cat(system, "Question ", i), 6)).text);
  Scheduler scheduler(*lm, {.parallel = 3, .queue = 10});
  std::vector<std::shared_ptr<Collect>> sinks;
  for (int i = 0; i < 3; i++) {
    sinks.push_back(std::make_shared<Collect>());
    scheduler.submit(request(cat(system, "Question ", i), 6), sinks.back());
  }
  size_t cached = 0, prompt = 0;
  for (size_t i = 0; i < sinks.size(); i++) {
    sinks[i]->wait();
    CHECK(sinks[i]->text_ == want[i]);
    cached += sinks[i]->cached, prompt += sinks[i]->prompt_tokens;
  }
  REQUIRE(prompt > 1000);
  CHECK(cached * 2 > prompt);
}

TEST_CASE("scheduler: cancelled, abandoned and wrong requests do not disturb the others") {
  auto lm = Lm::load(fixture("gguf/llama.Q8_0.gguf"), {.threads = 1, .ctx = 4000});
  Scheduler scheduler(*lm, {.parallel = 2, .queue = 10});
  auto stays = std::make_shared<Collect>(), cancelled = std::make_shared<Collect>(), leaves = std::make_shared<Collect>(),
       wrong = std::make_shared<Collect>(), waits = std::make_shared<Collect>();
  scheduler.submit(request("Stay", 200), stays);
  const uint64_t id = scheduler.submit(request("Be gone", 3900), cancelled);
  const uint64_t never = scheduler.submit(request("Never begun", 3900), waits);
  scheduler.cancel(never);
  cancelled->wait_text();
  scheduler.cancel(id);
  cancelled->wait();
  CHECK(cancelled->finish == Finish::cancelled);
  leaves->listens = false;
  scheduler.submit(request("Nobody listens", 3900), leaves);
  leaves->wait();
  CHECK(leaves->finish == Finish::cancelled);
  GenerateRequest bad = request("", 5);
  bad.prompt_ids = {99'999};
  scheduler.submit(bad, wrong);
  wrong->wait();
  CHECK(wrong->error.find("99999") != std::string::npos);
  stays->wait();
  waits->wait();
  CHECK(waits->finish == Finish::cancelled);
  CHECK(waits->text_ == "");
  Generator alone(*lm);
  CHECK(stays->text_ == alone.generate(request("Stay", 200)).text);
  CHECK(scheduler.idle());
}

TEST_CASE("scheduler: the queue has an end, and so has a draining one") {
  FakeLm lm;
  lm.model.say(std::string(900, 'a'));
  lm.model.on_step = [] { usleep(200); };
  Scheduler scheduler(lm, {.parallel = 1, .queue = 2});
  std::vector<std::shared_ptr<Collect>> sinks;
  int taken = 0;
  for (int i = 0; i < 6; i++) {
    sinks.push_back(std::make_shared<Collect>());
    taken += scheduler.submit(request("x", 50), sinks.back()) != 0;
  }
  CHECK(taken == 3);
  CHECK(scheduler.stats().refused == 3);
  scheduler.drain();
  auto late = std::make_shared<Collect>();
  CHECK(scheduler.submit(request("x", 50), late) == 0);
  for (int i = 0; i < 3; i++) sinks[size_t(i)]->wait();
  CHECK(scheduler.idle());
}

TEST_CASE("scheduler: its end cancels what is under way") {
  FakeLm lm;
  lm.model.say(std::string(900, 'a'));
  lm.model.on_step = [] { usleep(200); };
  std::vector<std::shared_ptr<Collect>> sinks;
  {
    Scheduler scheduler(lm, {.parallel = 2, .queue = 5});
    for (int i = 0; i < 5; i++) scheduler.submit(request("x", 900), sinks.emplace_back(std::make_shared<Collect>()));
    sinks[0]->wait_text();
  }
  for (auto& s : sinks) {
    CHECK(s->over);
    CHECK(s->finish == Finish::cancelled);
  }
}
