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
constexpr int kSpins = 100'000;             // about 2-4 ms of pause instructions: longer than sampling takes between tokens

}  // namespace

struct ThreadPool::Worker {
  ThreadPool* pool = nullptr;
  int thread = 0;
  pthread_t handle{};
};

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
    job_(context_, thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::run_job(Job job, void* context) {
  if (threads_ == 1) return job(context, 0);
  if (!workers_) start();
  jobs_++;
  job_ = job;
  context_ = context;
  running_.store(uint32_t(threads_ - 1), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst)) futex_wake(epoch_);
  job(context, 0);
  for (int spins = 0; running_.load(std::memory_order_acquire);) {
    pause_cpu();
    if (++spins > spins_) sched_yield();   // more threads than CPUs: let the other one run
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

}  // namespace

int quota_cpus(const char* root) {
  char path[1024], buf[512], self[400];
  long long quota = 0, period = 0;
  auto read = [&](const char* file, char* to, size_t size) {
    std::snprintf(path, sizeof path, "%s%s", root, file);
    return read_small(path, to, size);
  };
  std::string_view groups = read("/proc/self/cgroup", self, sizeof self);
  if (size_t at = groups.find("0::"); at != groups.npos && (at == 0 || groups[at - 1] == '\n')) {
    std::string_view own = groups.substr(at + 3);
    own = own.substr(0, own.find('\n'));
    // Walk from the own group up to the root: the smallest quota counts.
    int best = 0;
    for (;;) {
      std::snprintf(path, sizeof path, "%s/sys/fs/cgroup%.*s/cpu.max", root, int(own.size()), own.data());
      if (std::sscanf(read_small(path, buf, sizeof buf).empty() ? "" : buf, "%lld %lld", &quota, &period) == 2 && period > 0) {
        int n = int(std::max(1LL, quota / period));
        best = best ? std::min(best, n) : n;
      }
      if (own.empty() || own == "/") break;
      own = own.substr(0, own.rfind('/'));
    }
    if (best) return best;
  }
  if (!read("/sys/fs/cgroup/cpu.max", buf, sizeof buf).empty() && std::sscanf(buf, "%lld %lld", &quota, &period) == 2 && period > 0)
    return int(std::max(1LL, quota / period));
  if (!read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", buf, sizeof buf).empty() && std::sscanf(buf, "%lld", &quota) == 1 && quota > 0 &&
      !read("/sys/fs/cgroup/cpu/cpu.cfs_period_us", buf, sizeof buf).empty() && std::sscanf(buf, "%lld", &period) == 1 && period > 0)
    return int(std::max(1LL, quota / period));
  return 0;
}

int default_threads() {
  const int n = affinity_cpus();
  const char* mb = std::getenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE");
  if (const long v = mb ? std::strtol(mb, nullptr, 10) : 0; v > 0) return std::min(n, std::max(1, int((v + 1769 / 2) / 1769)));
  const int q = quota_cpus("");         // not on Lambda, which has none: looking costs start-up
  return q ? std::min(n, q) : n;
}

}  // namespace tealight
