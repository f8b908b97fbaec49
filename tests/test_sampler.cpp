#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "src/base/error.h"
#include "src/nn/sampler.h"
#include "tests/alloc_count.h"

using namespace tealight;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> some_logits(size_t n, uint32_t seed, double spread = 6) {
  std::vector<float> v(n);
  for (float& x : v) {
    seed = seed * 1664525u + 1013904223u;
    x = float((seed >> 8) / 16777216.0 * spread - spread / 2);
  }
  return v;
}

struct Kept {
  size_t id;
  double p;
};

// The distribution that is drawn from, by the definitions: sort, cut, renormalize, again and again.
std::vector<Kept> reference(const std::vector<double>& logits, const SamplingOptions& o) {
  std::vector<Kept> k;
  for (size_t i = 0; i < logits.size(); i++) k.push_back({i, logits[i]});
  const auto normalize = [](std::vector<Kept>& v, const std::vector<double>& l, double t) {
    double sum = 0, best = -1e300;
    for (const Kept& c : v) best = std::max(best, l[c.id]);
    for (Kept& c : v) sum += c.p = std::exp((l[c.id] - best) / t);
    for (Kept& c : v) c.p /= sum;
    std::stable_sort(v.begin(), v.end(), [](auto& a, auto& b) { return a.p > b.p; });
  };
  const auto cut = [](std::vector<Kept>& v, double mass) {
    double sum = 0;
    for (size_t i = 0; i < v.size(); i++)
      if ((sum += v[i].p) >= mass) return v.resize(i + 1);
  };
  normalize(k, logits, 1);
  if (o.top_k > 0 && size_t(o.top_k) < k.size()) k.resize(size_t(o.top_k));
  normalize(k, logits, 1);
  if (o.typical_p < 1) {
    double entropy = 0;
    for (const Kept& c : k) entropy -= c.p * std::log(c.p);
    std::stable_sort(k.begin(), k.end(), [&](auto& a, auto& b) { return std::fabs(-std::log(a.p) - entropy) < std::fabs(-std::log(b.p) - entropy); });
    cut(k, o.typical_p);
  }
  normalize(k, logits, 1);
  if (o.top_p < 1) cut(k, o.top_p);
  normalize(k, logits, 1);
  std::erase_if(k, [&, most = k[0].p](const Kept& c) { return c.p < o.min_p * most; });
  normalize(k, logits, o.temperature);
  return k;
}

// Draws often and compares the frequencies with the reference.
void check_distribution(SamplingOptions o, const std::vector<float>& logits) {
  o.seed = 42;
  const std::vector<Kept> want = reference({logits.begin(), logits.end()}, o);
  Sampler s(o, logits.size());
  std::vector<int> count(logits.size());
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; i++) count[size_t(s.sample(logits))]++;
  int drawn = 0;
  for (const Kept& k : want) {
    const double sigma = std::sqrt(kDraws * k.p * (1 - k.p)) + 1;
    CHECK(std::fabs(count[k.id] - kDraws * k.p) < 5 * sigma);
    drawn += count[k.id];
  }
  CHECK(drawn == kDraws);  // nothing else was chosen
}

TokenId choose(const SamplingOptions& o, std::vector<float> logits, std::vector<TokenId> prompt = {}) {
  Sampler s(o, logits.size());
  s.accept_prompt(prompt);
  return s.sample(logits);
}

SamplingOptions greedy() {
  SamplingOptions o;
  o.temperature = 0;
  return o;
}

}  // namespace

TEST_CASE("sampler: exp and log of our own are exact to a few units in the last place") {
  for (double x = 0; x > -699; x -= 0.0371) CHECK(std::fabs(portable_exp(x) / std::exp(x) - 1) < 5e-16);
  CHECK(portable_exp(0) == 1);
  CHECK(portable_exp(-701) == 0);
  CHECK(portable_exp(-std::numeric_limits<double>::infinity()) == 0);
  CHECK(portable_log(1) == 0);
  for (double x = 1e-9; x < 1e12; x *= 1.07) CHECK(std::fabs(portable_log(x) - std::log(x)) <= 1e-15 * std::max(1.0, std::fabs(std::log(x))));
  CHECK(portable_log(1e-300) == doctest::Approx(std::log(1e-300)).epsilon(1e-15));
}

TEST_CASE("sampler: greedy takes the largest logit, the lowest id of equals") {
  CHECK(choose(greedy(), {1, 3, 2}) == 1);
  CHECK(choose(greedy(), {1, 3, 3, 3}) == 1);
  CHECK(choose(greedy(), {-kInf, -5, -kInf}) == 1);
  CHECK(choose(greedy(), {-0.f, 0.f}) == 0);
}

TEST_CASE("sampler: NaN and infinity are errors of the request") {
  for (double t : {0.0, 1.0}) {
    SamplingOptions o;
    o.temperature = t;
    for (const std::vector<float>& bad : {std::vector<float>{1, NAN, 2}, {kInf, 0, 0}, {NAN, NAN, NAN}, {-kInf, -kInf, -kInf}}) {
      Sampler s(o, 3);
      try {
        s.sample(bad);
        FAIL("no error");
      } catch (const Error& e) {
        CHECK(e.code == Code::request);
      }
      CHECK(s.sample(std::vector<float>{0, 0, 30}) == 2);  // the sampler goes on
    }
  }
}

TEST_CASE("sampler: distributions follow the definitions") {
  for (uint32_t seed : {1u, 2u, 3u}) {
    const std::vector<float> logits = some_logits(40, seed);
    const auto with = [](auto set) {
      SamplingOptions o;
      set(o);
      return o;
    };
    check_distribution({}, logits);
    check_distribution(with([](auto& o) { o.temperature = 0.5; }), logits);
    check_distribution(with([](auto& o) { o.temperature = 3; }), logits);
    check_distribution(with([](auto& o) { o.top_k = 1; }), logits);
    check_distribution(with([](auto& o) { o.top_k = 7; }), logits);
    check_distribution(with([](auto& o) { o.top_k = 100; }), logits);
    check_distribution(with([](auto& o) { o.top_p = 0.5; }), logits);
    check_distribution(with([](auto& o) { o.top_p = 0; }), logits);
    check_distribution(with([](auto& o) { o.min_p = 0.2; }), logits);
    check_distribution(with([](auto& o) { o.min_p = 1; }), logits);
    check_distribution(with([](auto& o) { o.typical_p = 0.4; }), logits);
    check_distribution(with([](auto& o) { o.typical_p = 0; }), logits);
    check_distribution(with([](auto& o) { o = {.temperature = 0.7, .top_k = 20, .typical_p = 0.9, .top_p = 0.8, .min_p = 0.1}; }), logits);
  }
}

TEST_CASE("sampler: typical-p without the best token survives a tiny temperature") {
  // One token of 0.6 and many small ones: the entropy is far from the surprise of the best token.
  std::vector<float> logits(200, 0.f);
  logits[3] = 5.7f;
  SamplingOptions o;
  o.typical_p = 0.3;
  o.temperature = 1e-4;
  CHECK(choose(o, logits) >= 0);
  check_distribution(o, logits);
}

TEST_CASE("sampler: equal logits at a cut are kept in the order of their ids") {
  SamplingOptions o;
  o.top_k = 3;
  std::set<TokenId> seen;
  for (o.seed = 0; o.seed < 100; o.seed++) seen.insert(choose(o, std::vector<float>(50, 1.f)));
  CHECK(seen == std::set<TokenId>{0, 1, 2});
  o.top_k = 0;
  o.top_p = 0.03;  // 0.02 each
  seen.clear();
  for (o.seed = 0; o.seed < 100; o.seed++) seen.insert(choose(o, std::vector<float>(50, 1.f)));
  CHECK(seen == std::set<TokenId>{0, 1});
}

TEST_CASE("sampler: one seed gives one sequence on every machine") {
  const std::vector<float> logits = some_logits(1000, 5, 10);
  const auto draw = [&](SamplingOptions o) {
    Sampler s(o, logits.size());
    std::vector<TokenId> ids;
    for (int i = 0; i < 8; i++) ids.push_back(s.sample(logits));
    return ids;
  };
  CHECK(draw({.seed = 1}) == draw({.seed = 1}));
  CHECK(draw({.seed = 1}) != draw({.seed = 2}));
  CHECK(draw({.seed = 1}) == std::vector<TokenId>{583, 790, 977, 470, 470, 809, 885, 539});
  CHECK(draw({.temperature = 0.8, .top_k = 40, .typical_p = 0.95, .top_p = 0.95, .min_p = 0.05, .seed = 1}) ==
        std::vector<TokenId>{238, 721, 470, 997, 997, 973, 867, 412});
  CHECK(draw({.typical_p = 0.5, .seed = 1}) == std::vector<TokenId>{471, 785, 197, 632, 632, 142, 320, 829});
}

TEST_CASE("sampler: penalties and bias") {
  SamplingOptions o = greedy();
  o.repetition_penalty = 2;
  CHECK(choose(o, {3, 2, 0}, {0}) == 1);           // 3 / 2 < 2
  CHECK(choose(o, {-3, -4, -9}, {0}) == 1);        // -3 * 2 < -4
  CHECK(choose(o, {3, 1, 0}, {0, 0, 0}) == 0);     // once, however often it occurs
  CHECK(choose(o, {3, 2, 0}, {7, -1}) == 0);       // ids outside the vocabulary are ignored

  o = greedy();
  o.frequency_penalty = 1;
  Sampler f(o, 2);
  f.accept_prompt(std::vector<TokenId>{0, 0, 0, 0});  // the prompt does not count
  const std::vector<float> l = {2.5f, 0};
  std::vector<TokenId> ids;
  for (int i = 0; i < 6; i++) ids.push_back(f.sample(l));
  CHECK(ids == std::vector<TokenId>{0, 0, 0, 1, 0, 1});  // 2.5, 1.5, .5, -.5 | 0, -.5 | -1 ...

  o = greedy();
  o.presence_penalty = 1;
  Sampler p(o, 2);
  ids.clear();
  for (int i = 0; i < 4; i++) ids.push_back(p.sample(std::vector<float>{0.5f, 0}));
  CHECK(ids == std::vector<TokenId>{0, 1, 0, 0});

  o = greedy();
  o.logit_bias = {{2, 100}, {0, -100}};
  CHECK(choose(o, {9, 1, 0}) == 2);
  o.logit_bias = {{3, 1}};
  CHECK_THROWS_AS(Sampler(o, 3), Error);
  o.logit_bias = {{-1, 1}};
  CHECK_THROWS_AS(Sampler(o, 3), Error);
}

TEST_CASE("sampler: masked tokens are never chosen") {
  for (double t : {0.0, 5.0}) {
    SamplingOptions o;
    o.temperature = t;
    Sampler s(o, 4, true);
    const std::vector<TokenId> masked = {0, 2, 99};
    std::set<TokenId> seen;
    for (int i = 0; i < 200; i++) seen.insert(s.sample(std::vector<float>{9, 1, 9, 1}, masked));
    CHECK(seen == (t > 0 ? std::set<TokenId>{1, 3} : std::set<TokenId>{1}));
    CHECK_THROWS_AS(s.sample(std::vector<float>{1, 1, 1, 1}, std::vector<TokenId>{0, 1, 2, 3}), Error);
    CHECK(s.sample(std::vector<float>{90, 1, 1, 1}) == 0);
  }
}

TEST_CASE("sampler: log-probabilities are the model's own") {
  const std::vector<float> logits = some_logits(50, 9);
  double sum = 0;
  for (float l : logits) sum += std::exp(double(l));
  std::vector<std::pair<double, TokenId>> sorted;
  for (size_t i = 0; i < logits.size(); i++) sorted.emplace_back(-(logits[i] - std::log(sum)), TokenId(i));
  std::sort(sorted.begin(), sorted.end());
  SamplingOptions o;
  o.top_logprobs = 5;
  o.temperature = 0.3;
  o.logit_bias = {{sorted[30].second, 100}};
  Sampler s(o, logits.size());
  CHECK(s.sample(logits) == sorted[30].second);
  REQUIRE(s.logprobs().size() == 6);
  CHECK(s.logprobs()[0].id == sorted[30].second);
  CHECK(s.logprobs()[0].logprob == doctest::Approx(-sorted[30].first).epsilon(1e-12));
  for (size_t i = 0; i < 5; i++) {
    CHECK(s.logprobs()[1 + i].id == sorted[i].second);
    CHECK(s.logprobs()[1 + i].logprob == doctest::Approx(-sorted[i].first).epsilon(1e-12));
  }
  o.top_logprobs = 0;
  Sampler one(o, logits.size());
  one.sample(logits);
  CHECK(one.logprobs().size() == 1);
  o.top_logprobs = 20;
  o.logit_bias.clear();
  Sampler few(o, 3);
  few.sample(std::vector<float>{1, 1, 2});
  REQUIRE(few.logprobs().size() == 4);
  CHECK(few.logprobs()[1].id == 2);
  CHECK(few.logprobs()[2].id == 0);
  CHECK(few.logprobs()[3].id == 1);
}

TEST_CASE("sampler: nothing is allocated after the start") {
  const std::vector<float> logits = some_logits(5000, 3);
  for (int top_k : {0, 40}) {
    SamplingOptions o{.temperature = 0.9, .top_k = top_k, .typical_p = 0.95, .top_p = 0.9, .min_p = 0.02, .repetition_penalty = 1.1,
                      .frequency_penalty = 0.1, .presence_penalty = 0.1, .logit_bias = {{1, 2.0}}, .seed = 4, .top_logprobs = 20};
    Sampler s(o, logits.size(), true);
    const std::vector<TokenId> masked = {7};
    const size_t before = g_allocated_bytes;
    for (int i = 0; i < 100; i++) s.sample(logits, masked);
    CHECK(g_allocated_bytes == before);
  }
}
