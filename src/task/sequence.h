// Sequences of one model, evaluated alone or together.
#pragma once
#include <memory>
#include <vector>

#include "src/nn/decoder.h"
#include "src/task/lm.h"
#include "src/tensor/cpu_backend.h"
#include "src/tensor/row_search.h"

namespace tealight {

class Engine;
class WeightCopy;
class ReadAhead;

class EngineSequence final : public Sequence {
 public:
  EngineSequence(Engine& engine, int capacity);
  std::span<const float> eval(std::span<const TokenId> ids) override { return eval_last(ids, 1, 0).all; }
  Logits eval_last(std::span<const TokenId> ids, size_t rows, int best) override;
  void reserve(size_t rows) override;
  size_t batch_room() const override;
  void eval_all(std::span<const TokenId> ids, LogitsSink sink, void* context) override;
  size_t position() const override { return ids_.size(); }
  size_t capacity() const override { return capacity_; }
  std::span<const TokenId> ids() const override { return ids_; }
  size_t rewind(size_t position) override;
  Sequence* draft() override { return draft_.get(); }
  void set_draft(std::unique_ptr<Sequence> draft) { draft_ = std::move(draft); }
  uint64_t snapshot_bytes(size_t n) const override;
  uint64_t tile_bytes() const override;
  void save(size_t first, size_t n, std::byte* to) const override;
  void restore(const StateSnapshot& snapshot) override;
  bool share(const Sequence& from, size_t n) override;

 private:
  friend class Engine;
  Logits logits() const;
  void take_back(size_t position);     // what was appended from there on; nothing before is lost
  Engine& engine_;
  nn::State state_;
  const size_t capacity_;
  std::unique_ptr<Sequence> draft_;    // of another model
  std::vector<TokenId> ids_;
  size_t evaluated_ = 0;               // positions of ids_ whose keys and values are in the state
  size_t wanted_ = 1;                  // rows whose logits are wanted, the last ones
  int best_wanted_ = 0;                // of each row's logits the best so many are enough; 0: all
  Tensor logits_;                      // [wanted, vocab] or, after eval_all, of the last rows; undefined: best_ says what is wanted
  std::vector<TokenLogit> best_;       // [wanted, best_wanted]
  bool long_ = false;                  // the longer form of the rotation holds for all positions
};

// What the sequences of one model share: weights, device, and the buffers of one pass. One evaluation at a time.
class Engine {
 public:
  CpuBackend* device = nullptr;
  const nn::Decoder* decoder = nullptr;
  std::unique_ptr<nn::StateMemory> memory;   // of the sequences
  std::unique_ptr<RowSearch> search;   // of the head's rows; may be null
  WeightCopy* copy = nullptr;          // what makes this process quicker bit by bit; may be null
  // What a search is made from, while one may be: the squares of the final states [model], summed; some of the states, and the
  // largest logit of each.
  std::vector<double> energy;
  static constexpr size_t kSamples = 8;
  Tensor sample_states;                // [kSamples, model]
  std::vector<float> sample_tops;
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
      const Tensor states = decoder->final_states(pass({&self, 1}));
      check_finite(states);
      for (int64_t i = 0; i < states.dim(0); i++) f(position++, std::span<const float>(states.select(0, i).data(), size_t(states.dim(1))));
    }
  }

 private:
  friend class EngineSequence;
  void rehearse(nn::State& state, size_t rows);
  void append(EngineSequence& s, std::span<const TokenId> ids, size_t wanted = 1, int best = 0) const;
  // Evaluates what `sequences`, of one form of rotation, have not evaluated yet. Errors: Code::request.
  void run(std::span<EngineSequence*> sequences);
  Tensor pass(std::span<EngineSequence*> sequences);
  void run_all(EngineSequence& s, size_t wanted_from, LogitsSink sink, void* context);
  void check_finite(const Tensor& logits);
  void keep_logits(const Tensor& hidden);
  void keep_sample(const Tensor& states, const Tensor& logits);
  bool keep_best(const Tensor& states);
  void read_embeddings() const;

  int pause_ = 0, failures_ = 0;       // steps for which the search is left out, and why
  std::vector<RowSearch::Row> found_;
  size_t batch_ = 0;
  size_t rehearsed_ = 0;               // rows
  int rehearsed_capacity_ = 0;         // of a sequence
  std::vector<TokenId> ids_;           // the rows of the pass
  std::vector<int32_t> positions_;
  std::vector<nn::State*> states_;
  std::vector<AttentionRow> rows_;
  struct Ending {
    EngineSequence* sequence;
    size_t row;                        // the first of those wanted
  };
  std::vector<Ending> endings_;        // sequences that are complete: the logits of their last rows are wanted
  std::vector<EngineSequence*> group_;
};

}  // namespace tealight
