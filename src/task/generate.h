// From a request to an answer: prompt, evaluation, sampling, decoding, and the reasons to end.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/nn/sampler.h"
#include "src/task/draft.h"
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
  size_t drafted_tokens = 0, accepted_tokens = 0;   // guessed and checked; of these, those that were chosen
  std::vector<TokenLogprob> logprobs;  // 1 + top_logprobs for each chosen token; empty unless asked for
  double prompt_seconds = 0, decode_seconds = 0;
};

// Takes the answer piece by piece: never half a character, never text that may become a stop string. False: nobody
// listens any more, and the answer ends (Finish::cancelled).
using TextSink = std::function<bool(std::string_view)>;

// What ends an answer from outside.
struct GenerateControl {
  std::function<bool()> cancelled;     // looked at before each token and each piece of the prompt; may be empty
  int64_t deadline_us = 0;             // CLOCK_MONOTONIC; the answer ends (Finish::length) before a step that would pass it; 0: none
};

// The prompt's tokens, with exactly one BOS if the model wants one. Special tokens come from the prompt of a completion,
// and in a chat only from what the template itself wrote. Errors: Code::request, Code::template_, Code::tokenizer.
std::vector<TokenId> encode_request(Lm& lm, const GenerateRequest& request);

// One answer under way. Whoever drives it evaluates what it asks for, alone or together with others:
//   while (!g.done())
//     if (const auto ids = g.next(); !ids.empty()) g.take(sequence.eval_last(ids, g.rows(), g.wanted()));
class Generation {
 public:
  // Leaves in the sequence what it has in common with the prompt, or restores a stored prefix that is longer. `request` and the
  // sequence outlive the generation. Errors: Code::request.
  Generation(Lm& lm, const GenerateRequest& request, std::span<const TokenId> prompt, Sequence& sequence, TextSink sink,
             GenerateControl control);

  bool done() const { return done_; }
  bool reading() const { return given_ < prompt_.size(); }   // the prompt is not evaluated yet
  // Before next(): takes over from another sequence of the model what that has evaluated of the prompt and this one has not.
  void share(const Sequence& other);
  // What to evaluate next, at most `most` tokens: a piece of the prompt, or the token chosen last and guesses of what follows (draft.h).
  // Empty: the generation ended instead (cancelled, or out of time). sharing: sequences that are evaluated together; 0: no guesses.
  std::span<const TokenId> next(size_t most = SIZE_MAX, size_t sharing = 1);
  size_t rows() const { return 1 + drafts_; }                // whose logits take() needs
  int wanted() const { return sampler_.wanted(); }           // how many of the best logits are enough; 0: all
  // The logits of rows() rows after the last of these tokens: chooses tokens, hands out text, and takes back from the sequence what was
  // guessed wrong. Errors: Code::request when nothing can be chosen.
  void take(const Logits& logits);
  // After an evaluation that failed: true if there were guesses, which may have been the reason. next() goes on without any.
  bool drop_drafts();
  void cancel() { finish(Finish::cancelled); }
  void store_prompt() const;           // in the model's prefix cache; after the answer, as it takes time
  GenerateResult& result() { return result_; }

 private:
  size_t common(std::span<const TokenId> held) const;
  size_t propose(size_t most, size_t sharing);
  void choose(const Logits& logits);
  void finish(Finish f);
  void emit(std::string_view text);
  bool out_of_time(size_t tokens);
  void pause() const;

  Lm& lm_;
  const GenerateRequest& request_;
  std::vector<TokenId> prompt_;
  Sequence& sequence_;
  TextSink sink_;
  GenerateControl control_;
  Sampler sampler_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  GenerateResult result_;
  size_t most_ = 0;                    // tokens that may be chosen
  size_t given_ = 0;                   // tokens of the prompt that the sequence holds or next() has handed out
  TokenId step_[1 + kMaxDrafts] = {};  // the token chosen last, and guesses
  size_t drafts_ = 0;                  // how many
  bool alone_ = true;                  // the step is not shared
  std::optional<Drafter> drafter_;     // none: nothing is guessed
  bool done_ = false, heard_ = true;
  int64_t begin_us_, asked_us_ = 0, answer_us_ = 0;   // start, last next(), end of the prompt
  double us_per_token_ = 0;            // of the last step
  size_t asked_ = 0;                   // its tokens without guesses
};

// Answers requests one after the other with one sequence, and evaluates only what differs from the request before, or from a
// stored prefix.
class Generator {
 public:
  explicit Generator(Lm& lm) : lm_(lm) {}

  // Errors: Code::request; Code::memory.
  GenerateResult generate(const GenerateRequest& request, const TextSink& sink = {}, const GenerateControl& control = {});
  GenerateResult generate(const GenerateRequest& request, std::span<const TokenId> prompt, const TextSink& sink = {},
                          const GenerateControl& control = {});
  size_t capacity() { return sequence().capacity(); }   // positions of the sequence

 private:
  Sequence& sequence();

  Lm& lm_;
  std::unique_ptr<Sequence> sequence_;
};

}  // namespace tealight
