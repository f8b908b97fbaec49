#include "src/task/sequence.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/read_ahead.h"

namespace tealight {

EngineSequence::EngineSequence(Engine& engine, int capacity)
    : engine_(engine), state_(*engine.device, engine.decoder->state_layers(), engine.kv, capacity), capacity_(size_t(capacity)) {
  ids_.reserve(capacity_);
}

std::span<const float> EngineSequence::eval(std::span<const TokenId> ids) {
  const size_t before = ids_.size();
  engine_.append(*this, ids);
  EngineSequence* self = this;
  try {
    engine_.run({&self, 1});
  } catch (...) {
    rewind(before);
    throw;
  }
  return {logits_.data(), engine_.vocab()};
}

void EngineSequence::eval_all(std::span<const TokenId> ids, LogitsSink sink, void* context) {
  const size_t before = ids_.size();
  engine_.append(*this, ids);
  try {
    engine_.run_all(*this, before, sink, context);
  } catch (...) {
    rewind(before);
    throw;
  }
}

void EngineSequence::rewind(size_t position) {
  if (position < ids_.size()) ids_.resize(position);
  evaluated_ = std::min(evaluated_, ids_.size());
  state_.length = int(evaluated_);
}

uint64_t EngineSequence::snapshot_bytes(size_t n) const {
  if (n == 0 || n > evaluated_) return 0;
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
  if (s.fd >= 0) state_.restore_mapped(int(n), s.state.data(), s.fd, s.offset);
  else state_.restore(int(n), s.state.data());
  ids_.assign(s.ids.begin(), s.ids.end());
  evaluated_ = n;
  long_ = engine_.decoder->has_long_rope() && int64_t(n) > engine_.decoder->original_context();
}

void Engine::reserve(int batch) {
  batch_ = size_t(batch);
  ids_.reserve(batch_);
  positions_.reserve(batch_);
  states_.reserve(batch_);
  rows_.reserve(batch_);
}

void Engine::append(EngineSequence& s, std::span<const TokenId> ids) const {
  if (ids.empty()) fail(Code::request, "nothing to evaluate: no tokens");
  if (ids.size() > s.capacity_ - s.ids_.size())
    fail(Code::request, "the sequence would have ", s.ids_.size() + ids.size(), " tokens, its context holds ", s.capacity_);
  for (TokenId id : ids)
    if (id < 0 || id >= decoder->embedding.dim(0))
      fail(Code::request, "token id ", id, " is outside of the vocabulary of ", decoder->embedding.dim(0));
  s.ids_.insert(s.ids_.end(), ids.begin(), ids.end());
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
    return attempt(w, [&] { w.logits = w.sequence->eval(w.ids); });
  }
  for (const bool long_form : {false, true}) {
    group_.clear();
    for (SequenceWork& w : work) {
      auto& s = static_cast<EngineSequence&>(*w.sequence);
      if (!long_form) attempt(w, [&] { append(s, w.ids); });
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
        s.rewind(before);
        attempt(w, [&] { s.eval(w.ids); });
      }
      if (!w.error) w.logits = {s.logits_.data(), vocab()};
    }
  }
}

// One pass over as many rows as a batch has; the endings are those sequences that are complete with it.
Tensor Engine::pass(std::span<EngineSequence*> sequences) {
  ids_.clear(), positions_.clear(), states_.clear(), endings_.clear();
  for (EngineSequence* s : sequences) {
    const size_t from = s->evaluated_, n = std::min(s->ids_.size() - from, batch_ - ids_.size());
    if (n == 0) continue;
    ids_.insert(ids_.end(), s->ids_.begin() + long(from), s->ids_.begin() + long(from + n));
    for (size_t i = 0; i < n; i++) positions_.push_back(int32_t(from + i));
    states_.insert(states_.end(), n, &s->state_);
    s->evaluated_ = from + n;
    s->state_.length = int(s->evaluated_);
    if (s->evaluated_ == s->ids_.size()) endings_.push_back({s, ids_.size() - 1});
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
    const Tensor hidden = pass(sequences);
    keep_logits(hidden);
  }
}

void Engine::keep_logits(const Tensor& hidden) {
  const int64_t n = int64_t(endings_.size());
  Tensor logits;
  if (n == 1) {
    logits = decoder->logits(hidden.slice(0, int64_t(endings_[0].row), int64_t(endings_[0].row) + 1));
  } else if (n > 1) {
    Tensor last = hidden;
    if (n != hidden.dim(0)) {
      last = Tensor::empty(*device, {n, hidden.dim(1)});
      for (int64_t i = 0; i < n; i++) device->copy(hidden.select(0, int64_t(endings_[size_t(i)].row)), last.select(0, i));
    }
    logits = decoder->logits(last);
  }
  check_finite(logits);
  for (int64_t i = 0; i < n; i++) endings_[size_t(i)].sequence->logits_ = logits.slice(0, i, i + 1);
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
