#include "src/task/sequence.h"

#include <algorithm>
#include <cmath>

#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/read_ahead.h"
#include "src/task/draft.h"
#include "src/task/weight_copy.h"

namespace tealight {
namespace {

constexpr size_t kFewRows = 8;         // a pass of so many is one of decoding
constexpr int kMostFailures = 8;       // in a row; after n of them, 2^n steps go without it
constexpr int kUseless = 4;            // of so many on, the head is read as if there were none

}  // namespace

EngineSequence::EngineSequence(Engine& engine, int capacity)
    : engine_(engine), state_(*engine.memory, capacity), capacity_(size_t(capacity)) {
  ids_.reserve(capacity_);
  best_.reserve(RowSearch::kMaxBest * (1 + kMaxDrafts));
}

Logits EngineSequence::eval_last(std::span<const TokenId> ids, size_t rows, int best) {
  const size_t before = ids_.size();
  engine_.append(*this, ids, rows, best);
  EngineSequence* self = this;
  try {
    engine_.run({&self, 1});
  } catch (...) {
    take_back(before);
    throw;
  }
  return logits();
}

Logits EngineSequence::logits() const {
  if (!logits_) return Logits(std::span<const TokenLogit>(best_));
  return Logits({logits_.data(), wanted_ * engine_.vocab()});
}

void EngineSequence::reserve(size_t rows) { engine_.rehearse(state_, rows); }

// Both forms of the rotation give other bits: what is appended at once has one of them.
size_t EngineSequence::batch_room() const {
  const size_t original = size_t(engine_.decoder->original_context());
  return (ids_.size() < original ? std::min(original, capacity_) : capacity_) - ids_.size();
}

void EngineSequence::eval_all(std::span<const TokenId> ids, LogitsSink sink, void* context) {
  const size_t before = ids_.size();
  engine_.append(*this, ids);
  try {
    engine_.run_all(*this, before, sink, context);
  } catch (...) {
    take_back(before);
    throw;
  }
}

void EngineSequence::take_back(size_t position) {
  ids_.resize(std::min(position, ids_.size()));
  if (ids_.size() < evaluated_) evaluated_ = state_.holds(int(ids_.size())) ? ids_.size() : 0;
}

size_t EngineSequence::rewind(size_t position) {
  take_back(position);
  if (evaluated_ < ids_.size()) take_back(0);
  return ids_.size();
}

uint64_t EngineSequence::tile_bytes() const { return engine_.memory->tile_bytes(); }

uint64_t EngineSequence::snapshot_bytes(size_t n) const {
  if (n == 0 || n > evaluated_ || !state_.complete()) return 0;
  const nn::Decoder& d = *engine_.decoder;
  if (d.has_long_rope() && long_ != (int64_t(n) > d.original_context())) return 0;
  return state_.snapshot_bytes(int(n));
}

void EngineSequence::save(size_t first, size_t n, std::byte* to) const {
  TEALIGHT_CHECK(snapshot_bytes(n) > 0 && first % 16 == 0 && first < n);
  state_.save(int(first), int(n), to);
}

void EngineSequence::restore(const StateSnapshot& s) {
  const size_t n = s.ids.size();
  if (n == 0 || n > capacity_) fail(Code::request, "a snapshot of ", n, " tokens does not fit a context of ", capacity_);
  if (s.state.size() != state_.snapshot_bytes(int(n)))
    fail(Code::format, "a snapshot of ", n, " tokens has ", s.state.size(), " bytes, expected ", state_.snapshot_bytes(int(n)));
  for (TokenId id : s.ids)
    if (id < 0 || id >= engine_.decoder->embedding.dim(0)) fail(Code::format, "a snapshot holds the token id ", id, ", which the model does not have");
  state_.restore(int(n), s.state.data(), s.in_place);
  ids_.assign(s.ids.begin(), s.ids.end());
  evaluated_ = n;
  long_ = engine_.decoder->has_long_rope() && int64_t(n) > engine_.decoder->original_context();
}

// The first n tokens of another sequence of the same model.
bool EngineSequence::share(const Sequence& other, size_t n) {
  const auto& from = static_cast<const EngineSequence&>(other);
  TEALIGHT_CHECK(&from.engine_ == &engine_ && &from != this);
  n = std::min(n, from.evaluated_);
  const int64_t original = engine_.decoder->original_context();
  if (n == 0 || n > capacity_ || !from.state_.holds(int(n)) || (original > 0 && from.long_ != (int64_t(n) > original))) return false;
  state_.share(from.state_, int(n));
  ids_.assign(from.ids_.begin(), from.ids_.begin() + long(n));
  evaluated_ = n;
  long_ = from.long_;
  return true;
}

void Engine::reserve(int batch) {
  batch_ = size_t(batch);
  const size_t most = std::max(batch_, 1 + kMaxDrafts);
  ids_.reserve(most);
  positions_.reserve(most);
  states_.reserve(most);
  rows_.reserve(most);
  found_.reserve(RowSearch::kMaxBest * RowSearch::kMaxVectors);
}

// Goes through the passes without computing, the largest first, until they find all that they need: a pass begins with all blocks free
// and is the same each time.
void Engine::rehearse(nn::State& state, size_t rows) {
  if (decoder->positions) rows = std::min(rows, size_t(decoder->positions.dim(0)));
  if (rows <= rehearsed_ && state.capacity() <= rehearsed_capacity_) return;
  rehearsed_ = std::max(rehearsed_, rows);
  rehearsed_capacity_ = state.capacity();
  endings_.reserve(1);
  struct Rehearsal {
    CpuBackend& device;
    ~Rehearsal() { device.rehearse(false); }
  } rehearsal{*device};
  const std::vector<bool> repeating = decoder->repeating();
  const bool routed = std::any_of(decoder->blocks.begin(), decoder->blocks.end(), [](const nn::DecoderBlock& b) { return bool(b.moe); });
  const auto pass = [&](size_t n, size_t equal) {
    ids_.assign(n, 0), positions_.assign(n, 0), states_.assign(n, &state);
    device->rehearse(true, int64_t(equal));
    decoder->logits(decoder->hidden({ids_, positions_, states_, rows_}, false, {}, repeating));
  };
  for (uint64_t before = 0; before != device->blocks_made();) {
    before = device->blocks_made();
    for (size_t n = rehearsed_; n > 0; n--)
      for (size_t equal = 0; equal <= (routed ? n / 2 : 0); equal++) pass(n, equal);   // experts that so many rows choose, or the others
  }
}

void Engine::append(EngineSequence& s, std::span<const TokenId> ids, size_t wanted, int best) const {
  if (ids.empty()) fail(Code::request, "nothing to evaluate: no tokens");
  TEALIGHT_CHECK(wanted >= 1 && wanted <= ids.size());
  if (ids.size() > s.capacity_ - s.ids_.size())
    fail(Code::request, "the sequence would have ", s.ids_.size() + ids.size(), " tokens, its context holds ", s.capacity_);
  for (TokenId id : ids)
    if (id < 0 || id >= decoder->embedding.dim(0))
      fail(Code::request, "token id ", id, " is outside of the vocabulary of ", decoder->embedding.dim(0));
  s.ids_.insert(s.ids_.end(), ids.begin(), ids.end());
  s.logits_ = Tensor();                // their memory serves the next ones
  s.wanted_ = wanted;
  s.best_wanted_ = best;
  // The longer form of the rotation holds for the whole sequence: when it begins to apply, all positions are evaluated anew.
  const bool now_long = decoder->has_long_rope() && int64_t(s.ids_.size()) > decoder->original_context();
  if (now_long != s.long_) s.evaluated_ = 0;
  s.long_ = now_long;
}

void Engine::eval(std::span<SequenceWork> work) {
  const auto attempt = [](SequenceWork& w, auto f) {
    try {
      f();
    } catch (const Error& e) {
      w.error = e;
    }
  };
  if (work.size() == 1) {
    SequenceWork& w = work.front();
    return attempt(w, [&] { w.logits = w.sequence->eval_last(w.ids, w.rows, w.best); });
  }
  for (const bool long_form : {false, true}) {
    group_.clear();
    for (SequenceWork& w : work) {
      auto& s = static_cast<EngineSequence&>(*w.sequence);
      if (!long_form) attempt(w, [&] { append(s, w.ids, w.rows, w.best); });
      if (!w.error && s.long_ == long_form) group_.push_back(&s);
    }
    if (group_.empty()) continue;
    bool fault = false;
    try {
      run(group_);
    } catch (const Error&) {
      fault = true;
    }
    for (SequenceWork& w : work) {
      auto& s = static_cast<EngineSequence&>(*w.sequence);
      if (w.error || s.long_ != long_form) continue;
      // Whose fault it was shows when each goes alone; a row's result does not depend on the others.
      if (fault) {
        const size_t before = s.ids_.size() - w.ids.size();
        s.take_back(before);
        attempt(w, [&] { s.eval_last(w.ids, w.rows, w.best); });
      }
      if (!w.error) w.logits = s.logits();
    }
  }
}

// One pass over as many rows as a batch has; the endings are those sequences that are complete with it.
Tensor Engine::pass(std::span<EngineSequence*> sequences) {
  ids_.clear(), positions_.clear(), states_.clear(), endings_.clear();
  for (EngineSequence* s : sequences) {
    const size_t from = s->evaluated_, left = s->ids_.size() - from, room = batch_ - std::min(batch_, ids_.size());
    size_t n = std::min(left, room);
    // Rows whose logits are wanted stay together, in a larger pass if need be.
    if (n < left && left - n < s->wanted_) n = left > s->wanted_ ? left - s->wanted_ : ids_.empty() ? left : 0;
    if (n == 0) continue;
    ids_.insert(ids_.end(), s->ids_.begin() + long(from), s->ids_.begin() + long(from + n));
    for (size_t i = 0; i < n; i++) positions_.push_back(int32_t(from + i));
    states_.insert(states_.end(), n, &s->state_);
    s->evaluated_ = from + n;
    if (s->evaluated_ == s->ids_.size()) endings_.push_back({s, ids_.size() - s->wanted_});
  }
  if (read_ahead && !read_ahead->done()) read_embeddings();
  return decoder->hidden({ids_, positions_, states_, rows_}, sequences.front()->long_);
}

// The embedding is the last that is read, if at all: the rows of a pass are wanted together, not one after the other.
void Engine::read_embeddings() const {
  const Tensor& e = decoder->embedding;
  const size_t row = e.bytes() / size_t(e.dim(0));
  for (TokenId id : ids_) read_ahead->first({e.data<std::byte>() + size_t(id) * row, row});
}

void Engine::run(std::span<EngineSequence*> sequences) {
  const auto complete = [](const EngineSequence* s) { return s->evaluated_ == s->ids_.size(); };
  while (!std::all_of(sequences.begin(), sequences.end(), complete)) {
    const int64_t begin_us = monotonic_us();
    keep_logits(pass(sequences));
    if (copy && ids_.size() <= kFewRows) copy->after_step(double(monotonic_us() - begin_us));
  }
}

void Engine::keep_logits(const Tensor& hidden) {
  if (endings_.empty()) return check_finite({});
  int64_t n = 0;
  for (const Ending& e : endings_) n += int64_t(e.sequence->wanted_);
  Tensor last = hidden.slice(0, int64_t(endings_[0].row), int64_t(endings_[0].row + endings_[0].sequence->wanted_));
  if (endings_.size() > 1) {
    last = n == hidden.dim(0) ? hidden : Tensor::empty(*device, {n, hidden.dim(1)});
    int64_t to = 0;
    for (const Ending& e : endings_)
      for (size_t i = 0; i < e.sequence->wanted_ && n != hidden.dim(0); i++) device->copy(hidden.select(0, int64_t(e.row + i)), last.select(0, to++));
  }
  const Tensor states = decoder->final_states(last);
  for (int64_t i = 0; i < n; i++) {
    const float* x = states.data() + i * states.stride(0);
    for (size_t k = 0; k < energy.size(); k++) energy[k] += double(x[k]) * double(x[k]);
  }
  if (keep_best(states)) return;
  const Tensor logits = decoder->project(states);
  check_finite(logits);
  if (!energy.empty()) keep_sample(states, logits);
  int64_t from = 0;
  for (const Ending& e : endings_) {
    const int64_t to = from + int64_t(e.sequence->wanted_);
    e.sequence->logits_ = logits.slice(0, from, to);
    from = to;
  }
}

void Engine::keep_sample(const Tensor& states, const Tensor& logits) {
  const size_t n = sample_tops.size();
  if (n == kSamples) return;
  device->copy(states.select(0, 0), sample_states.select(0, int64_t(n)));
  const float* row = logits.data();
  float lane[8];                       // so that compilers make vectors of them
  std::fill(lane, lane + 8, -INFINITY);
  const size_t whole = vocab() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8)
    for (size_t j = 0; j < 8; j++) lane[j] = row[i + j] > lane[j] ? row[i + j] : lane[j];
  for (size_t i = whole; i < vocab(); i++) lane[0] = std::max(lane[0], row[i]);
  sample_tops.push_back(*std::max_element(lane, lane + 8));
}

// Where every ending needs a few of its logits only, finds those. False: nothing is done.
bool Engine::keep_best(const Tensor& states) {
  int most = 0;
  for (const Ending& e : endings_) {
    const int wanted = e.sequence->best_wanted_;
    if (wanted <= 0 || wanted > RowSearch::kMaxBest) most = RowSearch::kMaxBest + 1;
    most = std::max(most, wanted);
  }
  const bool possible = most <= RowSearch::kMaxBest && states.dim(0) <= RowSearch::kMaxVectors;
  if (copy) copy->head_used(possible && failures_ < kUseless);
  if (!search || !possible || int64_t(most) > decoder->vocab()) return false;
  if (pause_ > 0) {
    pause_--;
    return false;
  }
  found_.resize(size_t(states.dim(0)) * size_t(most));
  // What has to read many of the rows after all is slower than reading them all at once. Of some texts every step is like that.
  const bool found = search->find(states, most, found_, RowSearch::kWorthless);
  failures_ = search->exact_share() > RowSearch::kWorthless ? std::min(failures_ + 1, kMostFailures) : 0;
  pause_ = failures_ ? 1 << failures_ : 0;
  if (!found) return false;            // where a value is not finite, the whole product says so
  check_finite(Tensor());
  const RowSearch::Row* row = found_.data();
  for (const Ending& e : endings_) {
    EngineSequence& s = *e.sequence;
    s.logits_ = Tensor();
    s.best_.clear();
    for (size_t i = 0; i < s.wanted_; i++, row += most)
      for (int j = 0; j < s.best_wanted_; j++) s.best_.push_back({TokenId(row[j].id), row[j].value});
  }
  return true;
}

void Engine::check_finite(const Tensor& logits) {
  bool bad = device->take_fault();
  if (!bad && logits) bad = !device->kernels().all_finite(logits.data(), size_t(logits.elements()));
  if (bad) fail(Code::request, "the model computed a value that is not finite (NaN or infinity)");
}

void Engine::run_all(EngineSequence& s, size_t wanted_from, LogitsSink sink, void* context) {
  constexpr size_t kRows = 32;         // logits of many positions are made in pieces: a vocabulary is wide
  EngineSequence* self = &s;
  while (s.evaluated_ < s.ids_.size()) {
    const size_t from = s.evaluated_;
    const Tensor hidden = pass({&self, 1});
    const size_t n = s.evaluated_ - from;
    for (size_t i = 0; i < n; i += kRows) {
      const size_t m = std::min(kRows, n - i);
      if (from + i + m <= wanted_from) continue;
      s.logits_ = decoder->logits(hidden.slice(0, int64_t(i), int64_t(i + m)));
      check_finite(s.logits_);
      for (size_t j = 0; j < m; j++)
        if (from + i + j >= wanted_from) sink(context, from + i + j, {s.logits_.data() + j * vocab(), vocab()});
    }
  }
}

}  // namespace tealight
