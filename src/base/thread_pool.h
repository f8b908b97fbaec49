// A few threads that run one function together: fork, work (in phases), join. Workers spin for a short while after each job and
// park when nothing more comes (a wake-up through the kernel costs more than a whole fork-join of spinning threads).
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

namespace tealight {

class ThreadPool {
 public:
  // `threads` counts the caller too: one makes no thread at all. Workers are made at the first job that needs them.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  // Makes the workers now rather than at the first job.
  void start_now() {
    if (threads_ > 1 && !workers_) start();
  }
  // Runs f(share) once for each share = 0 .. threads() - 1 and returns when all have ended: 0 on the caller, the others on a worker
  // each, or on the caller too where a worker has not begun by then (on a busy machine it may wait for a processor for long).
  // f must not throw. One job at a time; f must not call run.
  template <class F>
  void run(const F& f) {
    run_phases(1, [&f](int, int share) { f(share); });
  }
  // One fork-join of several phases: f(phase, share) as above, each phase once all shares of the one before have ended.
  template <class F>
  void run_phases(int phases, const F& f) {
    run_job([](const void* p, int phase, int share) { (*static_cast<const F*>(p))(phase, share); }, &f, phases);
  }
  uint64_t jobs() const { return jobs_; }   // fork-joins so far

 private:
  using Job = void (*)(const void*, int, int);
  struct Worker;
  bool claim(int share, uint32_t epoch);
  void run_share(int share, uint32_t epoch);
  void wait_for(uint32_t epoch);
  void run_job(Job job, const void* context, int phases);
  void start();
  void work(int thread);

  const int threads_;
  uint64_t jobs_ = 0;
  Job job_ = nullptr;
  const void* context_ = nullptr;
  uint32_t first_ = 0;                      // the epoch of the job's first phase
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<uint32_t> epoch_{0};   // phases of all jobs so far
  alignas(64) std::atomic<uint32_t> ended_{0};   // their shares that have ended: epoch * threads where all have
  alignas(64) std::atomic<uint32_t> parked_{0};
  std::unique_ptr<Worker[]> workers_;
  int spins_;
};

// How many threads to use by default: the CPUs of the affinity mask, not more than the cgroup's CPU quota (rounded down) or, on
// AWS Lambda, the memory size / 1769 MB (nearest); at least one. What cannot be read is ignored.
int default_threads();

// CPUs that a cgroup's quota pays for, rounded down but at least one; 0 where there is no quota. Version 2 is looked for in the
// process's own group and those above it, then at the root of the mount (a container sees its own group there), then version
// 1 likewise. `root` stands before /proc and /sys ("": the machine's own).
int quota_cpus(const char* root);

}  // namespace tealight
