#include "src/task/draft.h"

#include <algorithm>
#include <bit>

#include "src/base/error.h"
#include "src/nn/sampler.h"

namespace tealight {
namespace {

// What is believed before anything is known. Copies by how many tokens before them agree: 2, 3, 4 to 5, 6 to 7, more.
constexpr std::array<float, DraftPace::kKinds> kCopyChances = {0.2f, 0.3f, 0.4f, 0.55f, 0.75f};
uint8_t copy_kind(size_t matching) { return uint8_t(std::min<size_t>(matching < 4 ? matching - 2 : matching / 2, DraftPace::kKinds - 1)); }

// Guesses of a model by its probability for them: below 0.3, 0.5, 0.7, 0.9, and above.
constexpr std::array<float, DraftPace::kKinds> kModelChances = {0.15f, 0.35f, 0.55f, 0.75f, 0.93f};
uint8_t model_kind(double p) { return p < 0.3 ? 0 : p < 0.5 ? 1 : p < 0.7 ? 2 : p < 0.9 ? 3 : 4; }

// The most likely token and its probability. It may be wrong where a logit is not a number: a guess may be wrong.
std::pair<TokenId, double> most_likely(std::span<const float> logits) {
  const size_t best = size_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
  double sum = 0;
  for (const float l : logits)
    if (const float x = l - logits[best]; x > -16) sum += portable_exp(double(x));
  return {TokenId(best), 1 / sum};
}

}  // namespace

RepeatIndex::RepeatIndex(size_t capacity) : capacity_(capacity), heads_(std::bit_ceil(std::clamp<size_t>(capacity, 64, 1 << 14)), -1) {
  ids_.reserve(capacity);
  before_.reserve(capacity);
}

// Of the tokens at i - 1 and i.
size_t RepeatIndex::bucket(size_t i) const {
  const uint32_t h = (uint32_t(ids_[i - 1]) * 0x9e3779b1u ^ uint32_t(ids_[i])) * 0x85ebca6bu;
  return size_t(h >> 8) & (heads_.size() - 1);
}

void RepeatIndex::push(TokenId id) {
  if (ids_.size() == capacity_) return;
  const size_t i = ids_.size();
  ids_.push_back(id);
  before_.push_back(-1);
  if (i == 0) return;
  int32_t& head = heads_[bucket(i)];
  before_[i] = head;
  head = int32_t(i);
}

// How many tokens up to the one at `end` are the last ones.
size_t RepeatIndex::matching(size_t end, size_t most) const {
  const size_t last = ids_.size() - 1;
  size_t n = 0;
  while (n < most && n <= end && ids_[end - n] == ids_[last - n]) n++;
  return n;
}

size_t RepeatIndex::guess(std::span<TokenId> out) const {
  constexpr int kTries = 32;           // copies that are looked at, latest first: of equally long ones the latest counts
  if (ids_.size() < 3) return 0;
  size_t longest = 1, from = 0;
  int32_t at = before_.back();
  for (int i = 0; i < kTries && at >= 0 && longest < kLongest; i++, at = before_[size_t(at)])
    if (const size_t n = matching(size_t(at), kLongest); n > longest) longest = n, from = size_t(at) + 1;
  if (longest < 2) return 0;
  // A copy that runs into its own end goes on with itself.
  for (size_t i = 0; i < out.size(); i++) out[i] = from + i < ids_.size() ? ids_[from + i] : out[from + i - ids_.size()];
  return longest;
}

void DraftPace::learn(size_t kind, bool right) {
  constexpr uint32_t kFirst = 4, kMemory = 24;       // what is believed at first counts like so many, and so many are remembered
  const float n = float(std::min(kFirst + seen_[kind]++, kMemory));
  chances_[kind] += (float(right) - chances_[kind]) / (n + 1);
}

// Running means; a pass that was interrupted counts little, and a cost that is not measured any more is forgotten.
void DraftPace::timed(size_t drafts, float us) {
  if (drafts == 0) {
    one_us_ += one_us_ > 0 ? (std::min(us, 2 * one_us_) - one_us_) / (us < one_us_ ? 4 : 16) : us;
    row_cost_ += (kRowCost - row_cost_) / 64;
  } else if (one_us_ > 0) {
    row_cost_ += (std::clamp((us / one_us_ - 1) / float(drafts), 0.05f, 1.0f) - row_cost_) / 16;
  }
}

// A pass over m rows takes 1 + (m - 1) row_cost.
float DraftPace::cost(size_t sharing) const {
  const float m = float(std::max<size_t>(sharing, 1));
  return m * row_cost_ / (1 + (m - 1) * row_cost_);
}

size_t DraftPace::worth(std::span<const uint8_t> kinds, size_t sharing) const {
  const float row = cost(sharing);
  float all_right = 1, tokens = 1, time = 1, best_gain = 1.06f;   // less would not be noticed, and estimates err
  size_t best = 0;
  for (size_t i = 0; i < kinds.size(); i++) {
    tokens += all_right *= chances_[kinds[i]];
    time += row;
    if (tokens / time > best_gain) best_gain = tokens / time, best = i + 1;
  }
  return best;
}

Drafter::Drafter(size_t most, size_t capacity, Sequence* draft, float draft_cost)
    : most_(std::min(most, kMaxDrafts)), index_(most_ ? capacity : 0), pace_(draft ? kModelChances : kCopyChances), draft_(draft),
      draft_cost_(draft_cost) {}

void Drafter::push(TokenId id) {
  if (at_ < n_) {
    const bool right = ids_[at_] == id;
    pace_.learn(kinds_[at_], right);
    if (at_ == 0) first_right_ += (float(right) - first_right_) / 16;
    at_ = right ? at_ + 1 : n_;
  }
  index_.push(id);
}

std::span<const TokenId> Drafter::propose(size_t most, size_t sharing) {
  n_ = at_ = 0;
  most = std::min(most, most_);
  if (most == 0) return {};
  if (draft_) ask_model(most, sharing);
  else look_up(most);
  return {ids_.data(), pace_.worth({kinds_.data(), n_}, sharing)};
}

// Guesses that are not worth a row are kept too: what comes tells whether they were right.
void Drafter::look_up(size_t most) {
  const size_t matching = index_.guess({ids_.data(), most});
  if (!matching) return;
  n_ = most;
  for (size_t i = 0; i < most; i++) kinds_[i] = copy_kind(matching + i);
}

void Drafter::ask_model(size_t most, size_t sharing) {
  constexpr size_t kRest = 16;         // steps between two tries while guesses are seldom right
  const float cost = pace_.cost(sharing) + draft_cost_;
  if (first_right_ < cost && ++resting_ < kRest) return;
  resting_ = 0;
  try {
    if (!catch_up()) return;
    float all_right = 1, tokens = 1;
    while (true) {
      const auto [id, p] = most_likely(logits_);
      ids_[n_] = id;
      kinds_[n_] = model_kind(p);
      tokens += all_right *= pace_.chance(kinds_[n_]);
      n_++;
      const bool pays = all_right * (1 + float(n_) * cost) > cost * tokens;
      if (n_ == most || !pays || draft_->batch_room() == 0) return;
      logits_ = draft_->eval({&id, 1});
    }
  } catch (const Error&) {
    draft_->rewind(0);
    most_ = 0;                         // no more guesses in this answer
    n_ = 0;
  }
}

// Evaluates what the draft model has not seen yet, a piece at a time. False: it is not at the end of the text.
bool Drafter::catch_up() {
  constexpr size_t kPiece = 256;
  const std::span<const TokenId> text = index_.ids(), held = draft_->ids();
  while (in_common_ < held.size() && in_common_ < text.size() && held[in_common_] == text[in_common_]) in_common_++;
  in_common_ = std::min(in_common_, text.size() - 1);
  in_common_ = draft_->rewind(in_common_);
  const size_t n = std::min({text.size() - in_common_, kPiece, draft_->batch_room()});
  if (n == 0) return false;            // its context is full
  logits_ = draft_->eval(text.subspan(in_common_, n));
  in_common_ += n;
  return in_common_ == text.size();
}

}  // namespace tealight
