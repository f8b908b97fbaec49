// Sequences of one model, evaluated alone or together.
#pragma once
#include <vector>

#include "src/nn/decoder.h"
#include "src/task/lm.h"
#include "src/tensor/cpu_backend.h"

namespace tealight {

class Engine;
class ReadAhead;

class EngineSequence final : public Sequence {
 public:
  EngineSequence(Engine& engine, int capacity);
  std::span<const float> eval(std::span<const TokenId> ids) override;
  void eval_all(std::span<const TokenId> ids, LogitsSink sink, void* context) override;
  size_t position() const override { return ids_.size(); }
  size_t capacity() const override { return capacity_; }
  std::span<const TokenId> ids() const override { return ids_; }
  void rewind(size_t position) override;
  uint64_t snapshot_bytes(size_t n) const override;
  uint64_t tile_bytes() const override { return state_.snapshot_bytes(16); }
  void save(size_t first, size_t n, std::byte* to) const override;
  void restore(const StateSnapshot& snapshot) override;

 private:
  friend class Engine;
  Engine& engine_;
  nn::State state_;
  const size_t capacity_;
  std::vector<TokenId> ids_;
  size_t evaluated_ = 0;               // positions of ids_ whose keys and values are in the state
  Tensor logits_;                      // [1, vocab] or, after eval_all, of the last rows
  bool long_ = false;                  // the longer form of the rotation holds for all positions
};

// What the sequences of one model share: weights, device, and the buffers of one pass. One evaluation at a time.
class Engine {
 public:
  CpuBackend* device = nullptr;
  const nn::Decoder* decoder = nullptr;
  Dtype kv = Dtype::f32;
  ReadAhead* read_ahead = nullptr;     // of the weights, where they are being read

  void reserve(int batch);             // rows of a pass
  // Appends and evaluates the tokens of each sequence, together. What goes wrong with one is its own error.
  void eval(std::span<SequenceWork> work);
  size_t vocab() const { return size_t(decoder->vocab()); }
  // Evaluates `ids` and hands out f(position, final states [model]) after the last norm.
  template <class F>
  void each_hidden(EngineSequence& s, std::span<const TokenId> ids, const F& f) {
    append(s, ids);
    for (EngineSequence* self = &s; s.evaluated_ < s.ids_.size();) {
      size_t position = s.evaluated_;
      const Tensor h = pass({&self, 1}), states = decoder->final_norm ? decoder->final_norm(h) : h;
      check_finite(states);
      for (int64_t i = 0; i < states.dim(0); i++) f(position++, std::span<const float>(states.select(0, i).data(), size_t(states.dim(1))));
    }
  }

 private:
  friend class EngineSequence;
  void append(EngineSequence& s, std::span<const TokenId> ids) const;
  // Evaluates what `sequences`, of one form of rotation, have not evaluated yet. Errors: Code::request.
  void run(std::span<EngineSequence*> sequences);
  Tensor pass(std::span<EngineSequence*> sequences);
  void run_all(EngineSequence& s, size_t wanted_from, LogitsSink sink, void* context);
  void check_finite(const Tensor& logits);
  void keep_logits(const Tensor& hidden);
  void read_embeddings() const;

  size_t batch_ = 0;
  std::vector<TokenId> ids_;           // the rows of the pass
  std::vector<int32_t> positions_;
  std::vector<nn::State*> states_;
  std::vector<AttentionRow> rows_;
  struct Ending {
    EngineSequence* sequence;
    size_t row;
  };
  std::vector<Ending> endings_;        // rows that are a sequence's last: their logits are wanted
  std::vector<EngineSequence*> group_;
};

}  // namespace tealight
