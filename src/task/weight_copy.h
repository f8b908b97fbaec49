// What makes a process quicker that lives beyond its first tokens: its weights in large pages and in the x16 layout, and a coarse
// copy of its head (RowSearch). Where the system can make large pages of a packed file's mapping, it is asked to, and nothing is copied.
// All of it is done in small pieces between steps, so that no step waits for it; results have the same bits before, between and after.
#pragma once
#include <memory>
#include <vector>

#include "src/nn/decoder.h"
#include "src/tensor/cpu_backend.h"

namespace tealight {

class Engine;

class WeightCopy {
 public:
  // Replaces weights of `decoder` one by one and, where it finds use for one, engine.search; both outlive it. room: bytes of memory
  // that it may take; a model that needs more stays as it is.
  WeightCopy(Engine& engine, nn::Decoder& decoder, uint64_t room);
  ~WeightCopy();
  WeightCopy(const WeightCopy&) = delete;
  WeightCopy& operator=(const WeightCopy&) = delete;

  // After each step of decoding: does some work, for a small share of the step's time.
  void after_step(double step_us);
  // Whether the head was, or could have been, searched, or all logits were needed.
  void head_used(bool searchable) { (searchable ? searched_ : read_)++; }
  void finish();                       // does the rest now

 private:
  struct Arena;
  struct Part;                         // one weight's copy under way
  bool next();                         // begins the next part; false: there is none
  void begin_weight(Tensor& w);
  bool work();                         // a piece; false: nothing is left
  bool collapse();                     // a piece of the part's mapping into a large page; false: none is left, or it cannot be done
  bool copy_rows(Part& p);             // a piece of a weight, of the head's coarse copy; true: that was the last one
  bool copy_search(Part& p);
  bool worthless(const Part& p);       // as the first groups of the head's coarse copy show
  std::byte* room_for(uint64_t bytes); // null: there is none

  Engine& engine_;
  nn::Decoder& decoder_;
  uint64_t room_;
  std::vector<Tensor*> todo_;          // in reverse order
  std::shared_ptr<Arena> arena_;
  std::unique_ptr<Part> part_;
  int steps_ = 0, searched_ = 0, read_ = 0;
  bool large_pages_ = true, collapses_ = true, head_copied_ = false, search_copied_ = false;
};

}  // namespace tealight
