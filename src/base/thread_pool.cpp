#include "src/base/thread_pool.h"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/error.h"

namespace tealight {
namespace {

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

int affinity_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

constexpr size_t kStackBytes = 512 << 10;   // kernels keep small tiles on the stack; musl's default is 128 KiB
constexpr int kWaitSpins = 4000;            // far longer than equal shares differ
constexpr int kSpins = 100'000;             // about 2-4 ms of pause instructions: longer than sampling takes between tokens

}  // namespace

struct alignas(64) ThreadPool::Worker {
  ThreadPool* pool = nullptr;
  int thread = 0;
  pthread_t handle{};
  std::atomic<uint32_t> claimed{0};         // the phase whose share of this worker somebody has begun
};

// Every share is run by whoever claims it first: once.
bool ThreadPool::claim(int share, uint32_t epoch) {
  uint32_t before = epoch - 1;
  return workers_[share].claimed.compare_exchange_strong(before, epoch, std::memory_order_acq_rel);
}

ThreadPool::ThreadPool(int threads) : threads_(std::max(1, threads)), spins_(threads_ <= affinity_cpus() ? kSpins : 200) {}

ThreadPool::~ThreadPool() {
  if (!workers_) return;
  stop_ = true;
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(epoch_);
  for (int i = 1; i < threads_; i++) pthread_join(workers_[i].handle, nullptr);
}

void ThreadPool::start() {
  workers_.reset(new Worker[size_t(threads_)]);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  for (int i = 1; i < threads_; i++) {
    workers_[i].pool = this;
    workers_[i].thread = i;
    int e = pthread_create(&workers_[i].handle, &attributes, [](void* p) -> void* {
      auto* w = static_cast<Worker*>(p);
      w->pool->work(w->thread);
      return nullptr;
    }, &workers_[i]);
    // The thread count is part of no result, but the split is made for it: without the thread nothing can go on.
    if (e) check_failed("a worker thread can be made (see ulimit -u)", __FILE__, __LINE__);
  }
  pthread_attr_destroy(&attributes);
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  for (;;) {
    int spins = 0;
    while (epoch_.load(std::memory_order_acquire) == seen) {
      if (++spins < spins_) {
        pause_cpu();
        continue;
      }
      parked_.fetch_add(1, std::memory_order_seq_cst);
      if (epoch_.load(std::memory_order_seq_cst) == seen) futex_wait(epoch_, seen);
      parked_.fetch_sub(1, std::memory_order_seq_cst);
      spins = 0;
    }
    seen++;
    if (stop_) return;
    wait_for(seen - 1);
    if (claim(thread, seen)) run_share(thread, seen);   // not before: who has claimed and is not running holds up all
  }
}

void ThreadPool::run_share(int share, uint32_t epoch) {
  job_(context_, int(epoch - first_), share);
  ended_.fetch_add(1, std::memory_order_release);
}

// Until all shares of a phase have ended.
void ThreadPool::wait_for(uint32_t epoch) {
  for (int spins = 0; int32_t(ended_.load(std::memory_order_acquire) - epoch * uint32_t(threads_)) < 0;) {
    pause_cpu();
    if (++spins > std::min(spins_, kWaitSpins)) sched_yield();   // somebody else has a worker's processor
  }
}

void ThreadPool::run_job(Job job, const void* context, int phases) {
  if (threads_ == 1) {
    for (int p = 0; p < phases; p++) job(context, p, 0);
    return;
  }
  if (!workers_) start();
  jobs_++;
  job_ = job;
  context_ = context;
  first_ = epoch_.load(std::memory_order_relaxed) + 1;
  const uint32_t last = epoch_.fetch_add(uint32_t(phases), std::memory_order_seq_cst) + uint32_t(phases);
  if (parked_.load(std::memory_order_seq_cst)) futex_wake(epoch_);
  for (uint32_t epoch = first_; epoch != last + 1; epoch++) {
    run_share(0, epoch);
    for (int share = 1; share < threads_; share++)
      if (claim(share, epoch)) run_share(share, epoch);
    wait_for(epoch);
  }
}

namespace {

// First bytes of a small file, or an empty string: system calls only, no allocation.
std::string_view read_small(const char* path, char* buf, size_t size) {
  int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  ssize_t n = ::read(fd, buf, size - 1);
  ::close(fd);
  if (n <= 0) return {};
  buf[n] = 0;
  return {buf, size_t(n)};
}

// The path of a group in /proc/self/cgroup, whose lines are "number:controller,controller:path": of a controller of version 1, or of
// version 2 (""), whose line names none. "" for the root, and where there is no such line.
std::string_view group_of(std::string_view lines, std::string_view controller) {
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    const size_t a = line.find(':'), b = line.find(':', a + 1);
    if (a == line.npos || b == line.npos) continue;
    std::string_view names = line.substr(a + 1, b - a - 1);
    for (;;) {
      const std::string_view name = names.substr(0, names.find(','));
      if (name == controller) return line.substr(b + 1) == "/" ? std::string_view() : line.substr(b + 1);
      if (name.size() == names.size()) break;
      names.remove_prefix(name.size() + 1);
    }
  }
  return {};
}

// CPUs of the smallest quota of a group and those above it up to the root; 0: there is none. limit(group, quota, period) tells one's.
template <class F>
int tightest(std::string_view group, const F& limit) {
  for (int best = 0;;) {
    long long quota = 0, period = 0;
    if (limit(group, quota, period) && quota > 0 && period > 0) {
      const int n = int(std::max(1LL, quota / period));
      best = best ? std::min(best, n) : n;
    }
    if (group.empty()) return best;
    group = group.substr(0, group.find('/') == group.npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

int quota_cpus(const char* root) {
  char path[1024], buf[512], self[2048];
  const auto read = [&](const char* folder, std::string_view group, const char* file, char* to, size_t size) {
    std::snprintf(path, sizeof path, "%s%s%.*s/%s", root, folder, int(group.size()), group.data(), file);
    return read_small(path, to, size);
  };
  const std::string_view groups = read("/proc/self", "", "cgroup", self, sizeof self);
  const int n = tightest(group_of(groups, ""), [&](std::string_view group, long long& quota, long long& period) {
    return !read("/sys/fs/cgroup", group, "cpu.max", buf, sizeof buf).empty() && std::sscanf(buf, "%lld %lld", &quota, &period) == 2;
  });
  if (n) return n;
  return tightest(group_of(groups, "cpu"), [&](std::string_view group, long long& quota, long long& period) {
    const auto number = [&](const char* file, long long& value) {
      return !read("/sys/fs/cgroup/cpu", group, file, buf, sizeof buf).empty() && std::sscanf(buf, "%lld", &value) == 1;
    };
    return number("cpu.cfs_quota_us", quota) && number("cpu.cfs_period_us", period);
  });
}

int default_threads() {
  const int n = affinity_cpus();
  const char* mb = std::getenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE");
  if (const long v = mb ? std::strtol(mb, nullptr, 10) : 0; v > 0) return std::min(n, std::max(1, int((v + 1769 / 2) / 1769)));
  const int q = quota_cpus("");         // not on Lambda, which has none: looking costs start-up
  return q ? std::min(n, q) : n;
}

}  // namespace tealight
