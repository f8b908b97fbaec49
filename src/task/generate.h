// From a request to an answer: prompt, evaluation, sampling, decoding, and the reasons to end.
#pragma once
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/nn/sampler.h"
#include "src/task/lm.h"
#include "src/task/request.h"

namespace tealight {

// Finds stop strings in a text that comes in pieces. The result does not depend on where the pieces are cut: the stop
// string that is complete first counts, the longest one of those.
class StopMatcher {
 public:
  // Views into `stops`, which must outlive the matcher.
  explicit StopMatcher(const std::vector<std::string>& stops);
  // The text that certainly belongs to the answer; valid until the next call. Nothing once stopped() is true.
  std::string_view push(std::string_view text);
  // What is still held back because it could have become a stop string.
  std::string_view finish();
  bool stopped() const { return stopped_; }

 private:
  const std::vector<std::string>& stops_;
  std::string held_;
  size_t given_ = 0;   // bytes at the front of held_ that the last call handed out
  bool stopped_ = false;
};

enum class Finish { stop, length, cancelled };
std::string_view finish_name(Finish f);

struct GenerateResult {
  std::string text;
  Finish finish = Finish::stop;
  size_t prompt_tokens = 0;
  size_t cached_tokens = 0;            // of the prompt: evaluated by an earlier request already
  size_t completion_tokens = 0;        // chosen tokens, an end token included
  std::vector<TokenLogprob> logprobs;  // 1 + top_logprobs for each chosen token; empty unless asked for
  double prompt_seconds = 0, decode_seconds = 0;
};

// Takes the answer piece by piece: never half a character, never text that may become a stop string. False: nobody
// listens any more, and the answer ends (Finish::cancelled).
using TextSink = std::function<bool(std::string_view)>;

// Answers requests one after the other with one sequence, and evaluates only what differs from the request before.
class Generator {
 public:
  explicit Generator(Lm& lm) : lm_(lm) {}

  // The prompt's tokens, with exactly one BOS if the model wants one. Special tokens come from the prompt of a completion,
  // and in a chat only from what the template itself wrote. Errors: Code::request, Code::template_, Code::tokenizer.
  std::vector<TokenId> encode(const GenerateRequest& request);
  // Errors: Code::request; Code::memory. `cancel`: looked at before each token (and each batch of the prompt); may be null.
  GenerateResult generate(const GenerateRequest& request, const TextSink& sink = {}, const volatile std::sig_atomic_t* cancel = nullptr);
  GenerateResult generate(const GenerateRequest& request, std::span<const TokenId> prompt, const TextSink& sink = {},
                          const volatile std::sig_atomic_t* cancel = nullptr);
  size_t capacity();                   // positions of the sequence

 private:
  Sequence& sequence();
  std::span<const float> eval_prompt(std::span<const TokenId> prompt, GenerateResult& result, const volatile std::sig_atomic_t* cancel);
  void decode(const GenerateRequest& request, std::span<const float> logits, size_t most, Sampler& sampler, GenerateResult& result,
              const TextSink& sink, const volatile std::sig_atomic_t* cancel);

  Lm& lm_;
  std::unique_ptr<Sequence> sequence_;
  std::vector<TokenId> ids_;           // what the sequence holds
  bool valid_ = true;                  // false after an error in the middle: nothing can be reused
};

}  // namespace tealight
