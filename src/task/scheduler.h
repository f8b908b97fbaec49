// Many generations at once: one thread evaluates all of them together, a row each, and new ones join between two steps.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "src/task/generate.h"

namespace tealight {

// Receives one generation's text. Called on the scheduler's thread, so it must not block: queue what comes and wake the
// thread that writes it.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  // The prompt has been read and fits: nothing but the model can fail from here on.
  virtual void admitted(size_t prompt_tokens) = 0;
  virtual bool text(std::string_view piece) = 0;               // false: cancel
  virtual void done(const GenerateResult& result) = 0;         // exactly one of these two is the last call
  virtual void failed(const Error& error) = 0;
};

struct SchedulerOptions {
  int parallel = 4;                    // generations evaluated together
  int queue = 64;                      // more wait, up to this many
};

struct SchedulerStats {
  uint64_t waiting = 0, running = 0;   // now
  uint64_t done = 0, failed = 0, cancelled = 0, refused = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, drafted_tokens = 0, accepted_tokens = 0;
};

class Scheduler {
 public:
  // Starts the thread. `lm` is used by that thread alone from here on, but for its constant parts (name, vocab).
  Scheduler(Lm& lm, const SchedulerOptions& options);
  ~Scheduler();                        // cancels everything and joins
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Returns a number for cancel(), or 0 when the queue is full or drain() was called.
  uint64_t submit(GenerateRequest request, std::shared_ptr<GenerationSink> sink);
  // Runs something else that needs the model, on the thread, between two steps. False when the queue is full or drain() was
  // called. What has not begun when the scheduler ends is dropped.
  bool submit_task(std::function<void(Lm&)> task);
  void cancel(uint64_t id);            // its done() comes soon, with Finish::cancelled; nothing happens if it is over
  void drain();                        // takes no more; what waits and runs is finished
  bool idle() const;                   // nothing waits or runs
  SchedulerStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tealight
