#include "src/task/scheduler.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <pthread.h>
#include <vector>

#include "src/base/error.h"

namespace tealight {
namespace {

struct Job {
  uint64_t id;
  GenerateRequest request;
  std::shared_ptr<GenerationSink> sink;
  std::atomic<bool> cancelled{false};
};

// A sequence, and the generation that uses it.
struct Slot {
  std::unique_ptr<Sequence> sequence;
  std::shared_ptr<Job> job;            // null: free
  std::optional<Generation> generation;
  uint64_t last_used = 0;
};

size_t common(std::span<const TokenId> a, std::span<const TokenId> b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) n++;
  return n;
}

}  // namespace

struct Scheduler::Impl {
  Impl(Lm& l, const SchedulerOptions& o) : lm(l), options(o), slots(size_t(o.parallel)) {}

  Lm& lm;
  const SchedulerOptions options;

  // Under the mutex.
  mutable std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::shared_ptr<Job>> waiting;
  std::vector<std::shared_ptr<Job>> all;                   // that wait or run
  std::deque<std::function<void(Lm&)>> tasks;
  bool in_task = false;
  uint64_t next_id = 1;
  bool draining = false, stop = false;
  SchedulerStats stats;

  // Of the thread alone.
  std::vector<Slot> slots;
  std::vector<SequenceWork> work;
  std::vector<Slot*> workers;
  uint64_t time = 0;
  pthread_t thread{};

  void run();
  void run_task();
  void drop_cancelled();
  void admit();
  void begin(std::shared_ptr<Job> job);
  Slot& best_slot(std::span<const TokenId> prompt);
  void step();
  template <class F>
  bool attempt(Job& job, F f);
  void end(Slot& slot);
  void close(const Job& job, uint64_t SchedulerStats::*kind);
};

// Runs a part of a generation; what goes wrong is the request's answer.
template <class F>
bool Scheduler::Impl::attempt(Job& job, F f) {
  std::optional<Error> error;
  try {
    f();
    return true;
  } catch (const Error& e) {
    error = e;
  } catch (const std::bad_alloc&) {
    error = Error(Code::memory, "not enough memory for this request; make it shorter");
  } catch (const std::exception& e) {
    error = Error(Code::request, cat("the request is too large: ", e.what()));
  }
  close(job, &SchedulerStats::failed);
  job.sink->failed(*error);
  return false;
}

void Scheduler::Impl::close(const Job& job, uint64_t SchedulerStats::*kind) {
  const std::lock_guard lock(mutex);
  stats.*kind += 1;
  std::erase_if(all, [&](const auto& j) { return j.get() == &job; });
}

void Scheduler::Impl::run() {
  while (true) {
    {
      std::unique_lock lock(mutex);
      const auto busy = [&] {
        for (const Slot& s : slots)
          if (s.job) return true;
        return false;
      };
      wake.wait(lock, [&] { return stop || !waiting.empty() || !tasks.empty() || busy(); });
      if (stop) break;
    }
    run_task();
    drop_cancelled();
    admit();
    step();
  }
  for (Slot& s : slots)
    if (s.job) {
      s.generation->cancel();
      end(s);
    }
  drop_cancelled();                    // all are, before the end
}

void Scheduler::Impl::run_task() {
  std::unique_lock lock(mutex);
  if (tasks.empty()) return;
  const std::function<void(Lm&)> task = std::move(tasks.front());
  tasks.pop_front();
  in_task = true;
  lock.unlock();
  task(lm);
  lock.lock();
  in_task = false;
}

// What was cancelled while it waited makes room for others at once.
void Scheduler::Impl::drop_cancelled() {
  std::vector<std::shared_ptr<Job>> dropped;
  {
    const std::lock_guard lock(mutex);
    std::erase_if(waiting, [&](const auto& j) {
      const bool drop = j->cancelled.load(std::memory_order_relaxed);
      if (drop) dropped.push_back(j);
      return drop;
    });
  }
  for (auto& j : dropped) begin(std::move(j));
}

// Fills free slots from the queue.
void Scheduler::Impl::admit() {
  while (true) {
    size_t running = 0;
    for (const Slot& s : slots) running += s.job != nullptr;
    std::shared_ptr<Job> job;
    {
      const std::lock_guard lock(mutex);
      if (waiting.empty() || running == slots.size()) return;
      job = std::move(waiting.front());
      waiting.pop_front();
    }
    begin(std::move(job));
  }
}

void Scheduler::Impl::begin(std::shared_ptr<Job> job) {
  if (job->cancelled.load(std::memory_order_relaxed)) {
    close(*job, &SchedulerStats::cancelled);
    GenerateResult result;
    result.finish = Finish::cancelled;
    return job->sink->done(result);
  }
  Job& j = *job;
  attempt(j, [&] {
    const std::vector<TokenId> prompt = encode_request(lm, j.request);
    Slot& slot = best_slot(prompt);
    if (!slot.sequence) slot.sequence = lm.start();
    GenerateControl control;
    control.cancelled = [&j] { return j.cancelled.load(std::memory_order_relaxed); };
    slot.generation.emplace(lm, j.request, prompt, *slot.sequence, [&j](std::string_view text) { return j.sink->text(text); },
                            std::move(control));
    slot.job = std::move(job);
    j.sink->admitted(prompt.size());
  });
}

// The free slot that holds most of the prompt already, if that is worth the loss of the rest that it holds; else the one that
// has been free for longest, those never used first.
Slot& Scheduler::Impl::best_slot(std::span<const TokenId> prompt) {
  constexpr size_t kWorthKeeping = 64;
  Slot* best = nullptr;
  size_t most = 0;
  for (Slot& s : slots) {
    if (s.job) continue;
    size_t n = s.sequence ? common(s.sequence->ids(), prompt) : 0;
    if (n < kWorthKeeping && 2 * n < prompt.size()) n = 0;
    if (!best || n > most || (n == most && s.last_used < best->last_used)) best = &s, most = n;
  }
  return *best;
}

// One token of every generation, and pieces of the prompts that are being read.
void Scheduler::Impl::step() {
  constexpr size_t kPrompt = 256;      // prompt tokens of one step: the others' next token waits for them
  work.clear(), workers.clear();
  size_t room = kPrompt, sharing = 0;
  bool reading = false;
  for (const Slot& s : slots)
    if (s.job) sharing++, reading |= s.generation->reading();
  if (reading) sharing = 0;            // a pass over a prompt reads the weights for many rows: guesses would cost what they bring
  for (Slot& s : slots) {
    if (!s.job) continue;
    for (const Slot& other : slots)    // prompts that begin alike are evaluated once
      if (other.sequence && s.generation->reading()) s.generation->share(*other.sequence);
    const std::span<const TokenId> ids = s.generation->next(std::max<size_t>(room, 1), sharing);
    if (s.generation->done()) {
      end(s);
      continue;
    }
    room -= std::min(room, ids.size());
    work.push_back({.sequence = s.sequence.get(), .ids = ids, .rows = s.generation->rows(), .best = s.generation->wanted()});
    workers.push_back(&s);
  }
  if (work.empty()) return;
  lm.eval(work);
  for (size_t i = 0; i < work.size(); i++) {
    Slot& s = *workers[i];
    if (work[i].error && s.generation->drop_drafts()) continue;
    const bool good = attempt(*s.job, [&] {
      if (work[i].error) fail(*work[i].error);
      s.generation->take(work[i].logits);
    });
    if (!good) {
      s.sequence->rewind(0);
      s.generation.reset();
      s.job.reset();
    } else if (s.generation->done()) {
      end(s);
    }
  }
}

void Scheduler::Impl::end(Slot& s) {
  const GenerateResult& r = s.generation->result();
  {
    const std::lock_guard lock(mutex);
    stats.prompt_tokens += r.prompt_tokens;
    stats.cached_tokens += r.cached_tokens;
    stats.completion_tokens += r.completion_tokens;
    stats.drafted_tokens += r.drafted_tokens;
    stats.accepted_tokens += r.accepted_tokens;
  }
  close(*s.job, r.finish == Finish::cancelled ? &SchedulerStats::cancelled : &SchedulerStats::done);
  s.job->sink->done(r);
  s.generation->store_prompt();
  s.generation.reset();
  s.job.reset();
  s.last_used = ++time;
}

Scheduler::Scheduler(Lm& lm, const SchedulerOptions& options) : impl_(new Impl(lm, options)) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 4 << 20);   // templates and regular expressions recurse; musl's default is 128 KiB
  const int e = pthread_create(&impl_->thread, &attributes, [](void* p) -> void* {
    static_cast<Impl*>(p)->run();
    return nullptr;
  }, impl_.get());
  pthread_attr_destroy(&attributes);
  if (e) fail(Code::memory, "cannot start a thread");
}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
    for (const auto& j : impl_->all) j->cancelled = true;
  }
  impl_->wake.notify_one();
  pthread_join(impl_->thread, nullptr);
}

uint64_t Scheduler::submit(GenerateRequest request, std::shared_ptr<GenerationSink> sink) {
  auto job = std::make_shared<Job>();
  job->request = std::move(request);
  job->sink = std::move(sink);
  const std::lock_guard lock(impl_->mutex);
  const size_t limit = size_t(impl_->options.queue) + size_t(impl_->options.parallel);
  if (impl_->draining || impl_->all.size() >= limit) {
    impl_->stats.refused++;
    return 0;
  }
  job->id = impl_->next_id++;
  impl_->all.push_back(job);
  impl_->waiting.push_back(job);
  impl_->wake.notify_one();
  return job->id;
}

bool Scheduler::submit_task(std::function<void(Lm&)> task) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->draining || impl_->tasks.size() >= size_t(impl_->options.queue)) {
    impl_->stats.refused++;
    return false;
  }
  impl_->tasks.push_back(std::move(task));
  impl_->wake.notify_one();
  return true;
}

void Scheduler::cancel(uint64_t id) {
  const std::lock_guard lock(impl_->mutex);
  for (const auto& j : impl_->all)
    if (j->id == id) j->cancelled = true;
}

void Scheduler::drain() {
  const std::lock_guard lock(impl_->mutex);
  impl_->draining = true;
}

bool Scheduler::idle() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->all.empty() && impl_->tasks.empty() && !impl_->in_task;
}

SchedulerStats Scheduler::stats() const {
  const std::lock_guard lock(impl_->mutex);
  SchedulerStats s = impl_->stats;
  s.waiting = impl_->waiting.size();
  s.running = impl_->all.size() - s.waiting;
  return s;
}

}  // namespace tealight
