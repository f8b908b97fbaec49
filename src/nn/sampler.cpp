#include "src/nn/sampler.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "src/base/error.h"

namespace tealight {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;  // ln 2 in two parts (fdlibm e_exp.c)

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014, figure 16).
uint64_t next_random(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
// Uniform in [0, 1), 53 bits.
double next_uniform(uint64_t& state) { return double(next_random(state) >> 11) * 0x1p-53; }

// portable_exp without branches, so that the compiler can compute several at a time (the same bits).
inline double exp_nonpositive(double x0) {
  const double x = x0 >= -700 ? x0 : -700;
  // x = n ln 2 + r with |r| <= ln 2 / 2; adding 1.5 * 2^52 rounds to a whole number and leaves it in the low bits.
  const double shifted = x * 0x1.71547652b82fep0 + 0x1.8p52;
  const double n = shifted - 0x1.8p52;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  // The Taylor polynomial of degree 13: its remainder is below 5e-18.
  double p = 1.0 / 6227020800;
  for (double c : {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24,
                   1.0 / 6, 0.5, 1.0, 1.0})
    p = p * r + c;
  const double y = std::bit_cast<double>(std::bit_cast<uint64_t>(p) + (std::bit_cast<uint64_t>(shifted) << 52));
  return x0 >= -700 ? y : 0;
}

constexpr size_t kBlock = 64;
void exp_block(double (&x)[kBlock]) {
  for (double& v : x) v = exp_nonpositive(v);
}

}  // namespace

double portable_exp(double x) { return exp_nonpositive(x); }

double portable_log(double x) {
  // x = m 2^n with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh((m - 1) / (m + 1)), whose series is cut at s^21.
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int n = int(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & ((uint64_t(1) << 52) - 1)) | (uint64_t(1023) << 52));
  if (m > 0x1.6a09e667f3bcdp0) m *= 0.5, n++;
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double p = 1.0 / 21;
  for (int k = 19; k >= 1; k -= 2) p = p * s2 + 1.0 / k;
  return n * kLn2High + (n * kLn2Low + 2 * s * p);
}

Sampler::Sampler(const SamplingOptions& options, size_t vocab, bool masks) : o_(options), vocab_(vocab), state_(options.seed) {
  const bool penalties = o_.repetition_penalty != 1 || o_.frequency_penalty != 0 || o_.presence_penalty != 0;
  for (auto [id, bias] : o_.logit_bias)
    if (id < 0 || size_t(id) >= vocab) fail(Code::request, "logit_bias: token ", id, " is not in the vocabulary of ", vocab);
  if (penalties) {
    seen_.resize(vocab);
    count_.resize(vocab);
  }
  if (penalties || masks || !o_.logit_bias.empty()) adjusted_.resize(vocab);
  if (o_.temperature > 0) pool_.resize(o_.top_k > 0 ? std::min(size_t(o_.top_k), vocab) : vocab);
  if (o_.top_logprobs >= 0) logprobs_.reserve(2 + size_t(o_.top_logprobs));
}

void Sampler::accept_prompt(std::span<const TokenId> ids) {
  if (seen_.empty()) return;
  for (TokenId id : ids)
    if (id >= 0 && size_t(id) < vocab_) seen_[size_t(id)] = true;
}

int Sampler::wanted() const {
  if (!adjusted_.empty() || o_.top_logprobs >= 0) return 0;
  if (o_.temperature == 0) return 1;
  return o_.typical_p < 1 ? 0 : o_.top_k;                // typical_p looks at the logits once more
}

TokenId Sampler::sample(const Logits& logits, std::span<const TokenId> masked) {
  const bool few = logits.all.empty();
  TEALIGHT_CHECK(few ? wanted() > 0 && logits.best.size() >= size_t(wanted()) : logits.all.size() == vocab_);
  TEALIGHT_CHECK(masked.empty() || !adjusted_.empty());
  raw_ = logits.all.data();
  if (!adjusted_.empty()) adjust(masked);
  TokenId chosen = few ? logits.best[0].id : best_token();
  if (o_.temperature > 0) {
    if (few) gather_best(logits.best);
    else if (o_.top_k > 0) gather_top_k();
    else gather();
    if (o_.typical_p < 1 || o_.top_p < 1) weigh(1);
    if (o_.typical_p < 1) keep_typical();
    if (o_.top_p < 1) keep_top_p();
    if (o_.min_p > 0) keep_min_p();
    chosen = draw();
  }
  if (!seen_.empty()) {
    seen_[size_t(chosen)] = true;
    count_[size_t(chosen)]++;
  }
  if (o_.top_logprobs >= 0) log_probabilities(chosen);
  return chosen;
}

// Bias (OpenAI API: added to the logits before sampling), then penalties: repetition as in CTRL (Keskar et al. 2019,
// section 4.1) with the sign rule of llama.cpp and transformers; frequency and presence as the OpenAI API defines them,
// mu[j] -= c[j] * frequency + (c[j] > 0) * presence, c counting tokens of the answer.
void Sampler::adjust(std::span<const TokenId> masked) {
  for (size_t i = 0; i < vocab_; i++) adjusted_[i] = raw_[i];
  for (auto [id, bias] : o_.logit_bias) adjusted_[size_t(id)] += bias;
  for (size_t i = 0; i < seen_.size(); i++) {
    if (!seen_[i]) continue;
    double& l = adjusted_[i];
    l = l > 0 ? l / o_.repetition_penalty : l * o_.repetition_penalty;
    if (count_[i]) l -= count_[i] * o_.frequency_penalty + o_.presence_penalty;
  }
  for (TokenId id : masked)
    if (id >= 0 && size_t(id) < vocab_) adjusted_[size_t(id)] = -kInfinity;
}

// The most likely token, the lowest id of equals. Looks at every logit, so that it also finds what is not a number.
TokenId Sampler::best_token() const {
  double best = -kInfinity;
  TokenId id = -1;
  bool bad = false;
  for (size_t i = 0; i < vocab_; i++) {
    const double l = logit(i);
    bad |= !(l < kInfinity);
    if (l > best) best = l, id = TokenId(i);
  }
  if (bad) fail(Code::request, "the model's output has a value that is NaN or infinite: this request cannot be answered");
  if (id < 0) fail(Code::request, "no token can be chosen: logit_bias or min_tokens excludes all of them");
  return id;
}

void Sampler::gather() {
  size_t n = 0;
  for (size_t i = 0; i < vocab_; i++)
    if (double l = logit(i); l > -kInfinity) pool_[n++] = {l, 0, TokenId(i)};
  left_ = {pool_.data(), n};
}

// A heap of the k best with the worst of them in front, then sorted: its order does not depend on the library.
void Sampler::gather_top_k() {
  const auto begin = pool_.begin();
  size_t n = 0;
  for (size_t i = 0; i < vocab_; i++) {
    const Candidate c{logit(i), 0, TokenId(i)};
    if (n < pool_.size()) {
      if (c.key == -kInfinity) continue;
      pool_[n++] = c;
      std::push_heap(begin, begin + ptrdiff_t(n), better);
    } else if (c.key > pool_[0].key) {
      std::pop_heap(begin, begin + ptrdiff_t(n), better);
      pool_[n - 1] = c;
      std::push_heap(begin, begin + ptrdiff_t(n), better);
    }
  }
  std::sort(begin, begin + ptrdiff_t(n), better);
  left_ = {pool_.data(), n};
}

void Sampler::gather_best(std::span<const TokenLogit> best) {
  for (size_t i = 0; i < pool_.size(); i++) pool_[i] = {double(best[i].logit), 0, best[i].id};
  left_ = pool_;
}

double Sampler::best_left() const {
  double best = -kInfinity;
  for (const Candidate& c : left_) best = std::max(best, c.key);
  return best;
}

double Sampler::total_left() const {
  double total = 0;
  for (const Candidate& c : left_) total += c.weight;
  return total;
}

// weight = exp((logit - best) / temperature)
void Sampler::weigh(double temperature) {
  const double best = best_left();
  for (size_t i = 0; i < left_.size(); i += kBlock) {
    const size_t n = std::min(kBlock, left_.size() - i);
    double x[kBlock] = {};
    for (size_t j = 0; j < n; j++) x[j] = (left_[i + j].key - best) / temperature;
    exp_block(x);
    for (size_t j = 0; j < n; j++) left_[i + j].weight = x[j];
  }
}

// Keeps candidates in falling order of their keys until their share of the weight reaches `mass`; the one that reaches it
// is kept too, so at least one is.
void Sampler::keep_mass(double mass) {
  const double enough = mass * total_left();
  const auto worse = [](const Candidate& a, const Candidate& b) { return better(b, a); };
  std::make_heap(left_.begin(), left_.end(), worse);
  double sum = 0;
  auto end = left_.end();
  while (end != left_.begin()) {  // the best of the rest moves to the end of the heap
    std::pop_heap(left_.begin(), end, worse);
    sum += (--end)->weight;
    if (sum >= enough) break;
  }
  left_ = {end, left_.end()};
}

// Locally typical sampling (Meister et al. 2022, section 4): orders by the distance of a token's surprise -log p from the
// entropy.
void Sampler::keep_typical() {
  const double best = best_left(), total = total_left(), log_total = best + portable_log(total);
  double entropy = 0;
  for (const Candidate& c : left_) entropy -= c.weight / total * (c.key - log_total);
  for (Candidate& c : left_) {
    const double distance = (log_total - c.key) - entropy;
    c.key = distance < 0 ? distance : -distance;
  }
  keep_mass(o_.typical_p);
  for (Candidate& c : left_) c.key = logit(size_t(c.id));
}

// Nucleus sampling (Holtzman et al. 2020, section 3.1). The many tokens that are too unlikely to matter are dropped first:
// all n below (1 - p) / n of the probability have less than 1 - p together, so the better ones have p.
void Sampler::keep_top_p() {
  const double least = (1 - o_.top_p) * total_left() / double(left_.size());
  const double total = total_left();
  const auto end = std::remove_if(left_.begin(), left_.end(), [&](const Candidate& c) { return c.weight < least; });
  left_ = {left_.begin(), end};
  keep_mass(o_.top_p * total / total_left());
}

// Min-p (Nguyen et al. 2024, section 3): p >= min_p * p_max.
void Sampler::keep_min_p() {
  const double least = best_left() + portable_log(o_.min_p);
  const auto end = std::remove_if(left_.begin(), left_.end(), [&](const Candidate& c) { return c.key < least; });
  left_ = {left_.begin(), end};
}

TokenId Sampler::draw() {
  weigh(o_.temperature);
  const double point = next_uniform(state_) * total_left();
  double sum = 0;
  for (const Candidate& c : left_) {
    sum += c.weight;
    if (point < sum) return c.id;
  }
  return left_.back().id;  // not reached: point is below the total, where the sum ends
}

void Sampler::log_probabilities(TokenId chosen) {
  double best = -kInfinity, total = 0;
  for (size_t i = 0; i < vocab_; i++) best = std::max(best, double(raw_[i]));
  for (size_t i = 0; i < vocab_; i += kBlock) {
    const size_t n = std::min(kBlock, vocab_ - i);
    double x[kBlock] = {};
    for (size_t j = 0; j < n; j++) x[j] = double(raw_[i + j]) - best;
    exp_block(x);
    for (size_t j = 0; j < n; j++) total += x[j];
  }
  const double log_total = best + portable_log(total);
  logprobs_.assign(1, TokenLogprob{chosen, double(raw_[chosen]) - log_total});
  const size_t n = 1 + size_t(o_.top_logprobs);
  for (size_t i = 0; i < vocab_ && n > 1; i++) {  // insertion: few places, and few tokens get one
    const double p = double(raw_[i]) - log_total;
    if (logprobs_.size() == n && !(p > logprobs_.back().logprob)) continue;
    size_t at = logprobs_.size();
    while (at > 1 && logprobs_[at - 1].logprob < p) at--;
    logprobs_.insert(logprobs_.begin() + ptrdiff_t(at), TokenLogprob{TokenId(i), p});
    if (logprobs_.size() > n) logprobs_.pop_back();
  }
}

}  // namespace tealight
