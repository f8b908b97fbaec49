// Speculative decoding: guesses of the next tokens ("drafts"), which the model checks in one pass. A pass over a few rows costs little
// more than one over a single row, since the weights are read once, so a right guess is a token almost for free. A token is chosen from
// its row's logits whether it was guessed or not, and a row's logits do not depend on the other rows: the text is that of plain
// decoding, bit for bit, whatever the drafts are, also with a seed, penalties and log-probabilities. (Leviathan, Kalman, Matias 2023,
// arXiv 2211.17192, whose acceptance rule needs less: only the distribution stays the same.)
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "src/task/lm.h"

namespace tealight {

constexpr size_t kMaxDrafts = 15;      // of one step

// Finds text that repeats: what followed the longest earlier copy of the last tokens (prompt lookup decoding, Saxena 2023).
class RepeatIndex {
 public:
  explicit RepeatIndex(size_t capacity);             // tokens; nothing is allocated later
  void push(TokenId id);
  // Guesses `out` and returns how many of the last tokens were found before: 0 (nothing is guessed), or 2 to kLongest.
  size_t guess(std::span<TokenId> out) const;
  static constexpr size_t kLongest = 8;
  std::span<const TokenId> ids() const { return ids_; }

 private:
  size_t bucket(size_t i) const;
  size_t matching(size_t end, size_t most) const;
  size_t capacity_;
  std::vector<TokenId> ids_;
  std::vector<int32_t> heads_;         // for each hash of two tokens the place of the second one, the last such; -1: none
  std::vector<int32_t> before_;        // for each place the one before with that hash
};

// How many drafts are worth their rows: learns how often those of each kind (0 .. kKinds - 1) are right, and what a row costs.
class DraftPace {
 public:
  static constexpr size_t kKinds = 5;
  // chances: what is believed at first.
  explicit DraftPace(const std::array<float, kKinds>& chances) : chances_(chances) {}
  void learn(size_t kind, bool right);
  void timed(size_t drafts, float us);       // a pass over one sequence took so long
  float chance(size_t kind) const { return chances_[kind]; }
  // How many of the drafts to check, with `sharing` sequences in one pass.
  size_t worth(std::span<const uint8_t> kinds, size_t sharing) const;
  // What a draft costs of the time that each of `sharing` sequences has in a pass.
  float cost(size_t sharing) const;

 private:
  std::array<float, kKinds> chances_;
  std::array<uint32_t, kKinds> seen_ = {};
  static constexpr float kRowCost = 0.45f;   // what is believed at first: 0.35 to 0.6 with AVX2
  float row_cost_ = kRowCost;                // of a further row: its share of the time of a pass over one row
  float one_us_ = 0;                         // such a pass
};

// The drafts of one generation.
class Drafter {
 public:
  // most: drafts of a step. capacity: tokens that prompt and answer can have. draft: a sequence of a smaller model that guesses, or null:
  // text that repeats is guessed. draft_cost: its share of the time of a token.
  Drafter(size_t most, size_t capacity, Sequence* draft, float draft_cost);
  void push(TokenId id);               // the next token of prompt or answer
  void timed(size_t drafts, float us) { pace_.timed(drafts, us); }
  // Guesses up to `most` tokens that are worth checking; valid until the next call. Never fails.
  std::span<const TokenId> propose(size_t most, size_t sharing);

 private:
  void look_up(size_t most);
  void ask_model(size_t most, size_t sharing);
  bool catch_up();

  size_t most_;
  RepeatIndex index_;
  DraftPace pace_;
  Sequence* draft_;
  float draft_cost_;
  std::span<const float> logits_;      // of the draft model, after all tokens so far
  std::array<TokenId, kMaxDrafts> ids_;
  std::array<uint8_t, kMaxDrafts> kinds_;
  size_t n_ = 0, at_ = 0;              // guesses; the next one to come true, n_ when one was wrong
  size_t in_common_ = 0;               // first tokens of the draft model's sequence that are the text's
  float first_right_ = 1;              // how often the draft model's first guess is right
  size_t resting_ = 0;                 // steps since it was asked last
};

}  // namespace tealight
