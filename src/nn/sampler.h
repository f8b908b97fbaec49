// From logits to the next token.
//
// Everything is computed in double from the f32 logits by fixed sequences of operations, with exp and log of our own
// (sampler.cpp), ties broken by the lower id and a generator of our own, so that one seed gives one text on every machine.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "src/text/tokenizer.h"

namespace tealight {

// The steps apply in this order: logit bias, penalties, top-k, typical, top-p, min-p (each on the renormalized rest of
// the one before), then the temperature on what is left. That is llama.cpp's order: what is cut off does not depend on
// the temperature. The defaults are the plain softmax distribution.
struct SamplingOptions {
  double temperature = 1;         // divides the logits; 0: greedy, the most likely token, cut-offs and seed unused
  int top_k = 0;                  // keep the k most likely; 0: all
  double typical_p = 1;           // keep the tokens whose surprise is nearest to the entropy, up to this mass; 1: all
  double top_p = 1;               // keep the most likely tokens up to this mass; 1: all
  double min_p = 0;               // keep tokens with at least this share of the best one's probability; 0: all
  double repetition_penalty = 1;  // of tokens in the prompt or the answer: logit / r where positive, else logit * r
  double frequency_penalty = 0;   // logit -= count in the answer * this
  double presence_penalty = 0;    // logit -= this, for tokens in the answer
  std::vector<std::pair<TokenId, double>> logit_bias;  // logit += bias
  uint64_t seed = 0;
  int top_logprobs = -1;          // -1: no log-probabilities; n: of the chosen token and the n most likely
};

constexpr int kMaxTopLogprobs = 20;

struct TokenLogit {
  TokenId id;
  float logit;
};

// What a model says after one or several tokens: all logits [rows, vocab]; or, where that was enough, the best ones alone [rows, k],
// of each row the best first and the lower id of equals first, and `all` is empty.
struct Logits {
  Logits() = default;
  Logits(std::span<const float> a) : all(a) {}               // NOLINT: conversions
  Logits(const std::vector<float>& a) : all(a) {}            // NOLINT
  explicit Logits(std::span<const TokenLogit> b) : best(b) {}
  Logits row(size_t i, size_t rows) const {
    if (all.empty()) return Logits(best.subspan(i * (best.size() / rows), best.size() / rows));
    return all.subspan(i * (all.size() / rows), all.size() / rows);
  }
  std::span<const float> all;
  std::span<const TokenLogit> best;
};

// A token and the natural logarithm of its probability under the model's own logits (before bias, penalties, cut-offs
// and temperature).
struct TokenLogprob {
  TokenId id;
  double logprob;
};

class Sampler {
 public:
  // Reserves everything: sample() and accept() never allocate. Errors: Code::request for an id outside the vocabulary.
  // `masks`: sample() will be given tokens that may not be chosen.
  Sampler(const SamplingOptions& options, size_t vocab, bool masks = false);

  // How many of the best logits sample() needs to choose what it would choose from all of them; 0: all are needed.
  int wanted() const;
  // Tokens of the prompt, for the repetition penalty.
  void accept_prompt(std::span<const TokenId> ids);
  // The next token, counted for the penalties. logits [vocab]; `masked` tokens are never chosen.
  // Errors: Code::request when a logit is NaN or infinite upwards, or nothing can be chosen.
  TokenId sample(const Logits& logits, std::span<const TokenId> masked = {});

  // Of the last sample(): the chosen token first, then the most likely ones, best first. Empty without top_logprobs.
  std::span<const TokenLogprob> logprobs() const { return logprobs_; }

 private:
  struct Candidate {
    double key;      // the logit, or what the present step orders by
    double weight;   // proportional to the probability
    TokenId id;
  };
  static bool better(const Candidate& a, const Candidate& b) { return a.key > b.key || (a.key == b.key && a.id < b.id); }
  void adjust(std::span<const TokenId> masked);
  TokenId best_token() const;
  void gather();
  void gather_top_k();
  void gather_best(std::span<const TokenLogit> best);
  double best_left() const;
  double total_left() const;
  void weigh(double temperature);
  void keep_mass(double mass);
  void keep_typical();
  void keep_top_p();
  void keep_min_p();
  TokenId draw();
  void log_probabilities(TokenId chosen);
  double logit(size_t id) const { return adjusted_.empty() ? double(raw_[id]) : adjusted_[id]; }

  SamplingOptions o_;
  size_t vocab_;
  const float* raw_ = nullptr;             // the logits of the present call
  std::vector<double> adjusted_;           // [vocab] when bias, penalties or masks are in use, else empty
  std::vector<bool> seen_;                 // in the prompt or the answer
  std::vector<uint32_t> count_;            // in the answer
  std::vector<Candidate> pool_;            // storage of the candidates
  std::span<Candidate> left_;              // what is left of them
  std::vector<TokenLogprob> logprobs_;
  uint64_t state_;
};

// exp(x) for x <= 0 and log(x) for normal x > 0, to within a few units in the last place, by the same additions and
// multiplications everywhere. exp gives 0 below -700.
double portable_exp(double x);
double portable_log(double x);

}  // namespace tealight
