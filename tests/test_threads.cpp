// The thread pool, and how many threads a machine's quota pays for.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "src/base/thread_pool.h"

using namespace tealight;

namespace {

// A folder that plays the root of a machine.
struct FakeRoot {
  std::string path;
  FakeRoot() {
    char name[] = "/tmp/tealight_root_XXXXXX";
    REQUIRE(mkdtemp(name));
    path = name;
  }
  ~FakeRoot() { REQUIRE(std::system(("rm -rf " + path).c_str()) == 0); }
  void write(const std::string& file, const std::string& text) {
    REQUIRE(std::system(("mkdir -p " + path + file.substr(0, file.rfind('/'))).c_str()) == 0);
    std::FILE* f = std::fopen((path + file).c_str(), "w");
    REQUIRE(f);
    std::fputs(text.c_str(), f);
    std::fclose(f);
  }
};

}  // namespace

TEST_CASE("threads: every thread runs each job once, for any number of jobs and threads") {
  for (int n : {1, 2, 3, 7}) {
    ThreadPool pool(n);
    std::vector<int> ran(size_t(n), 0);
    for (int job = 0; job < 200; job++) {
      pool.run([&](int t) { ran[size_t(t)]++; });
      if (job == 100) usleep(20000);               // long enough to park
    }
    for (int r : ran) CHECK(r == 200);
  }
}

TEST_CASE("threads: what a job writes is seen after it, and by the next") {
  ThreadPool pool(2);
  std::vector<int> data(1000, 0);
  for (int round = 1; round <= 50; round++) {
    pool.run([&](int t) {
      for (size_t i = size_t(t); i < data.size(); i += 2) data[i]++;
    });
    pool.run([&](int t) {                            // the other half
      for (size_t i = size_t(1 - t); i < data.size(); i += 2)
        if (data[i] != round) data[i] = -1000000;
    });
  }
  for (int v : data) CHECK(v == 50);
}

TEST_CASE("threads: a phase sees what all shares of the one before have written") {
  for (int n : {1, 2, 3, 7}) {
    ThreadPool pool(n);
    const auto size = size_t(n);
    constexpr int kPhases = 4;
    std::vector<int> data(size, 0), wrong(size, 0);
    for (int job = 0; job < 300; job++) {
      const uint64_t before = pool.jobs();
      pool.run_phases(kPhases, [&](int phase, int share) {
        if (job % 50 == share) usleep(300);          // the others wait for it
        const int now = job * kPhases + phase;
        if (phase % 2 == 0) {
          data[size_t(share)] = now;                 // in even phases each writes its own, in odd ones it reads all
        } else {
          for (int v : data) wrong[size_t(share)] += v != now - 1;
        }
      });
      CHECK(pool.jobs() - before == (n > 1));
      if (job % 3 == 0) pool.run([&](int share) { data[size_t(share)] = -1; });
      if (job == 100) usleep(20000);                 // long enough to park
    }
    for (int w : wrong) CHECK(w == 0);
  }
}

TEST_CASE("threads: cgroup quotas are rounded down, and absent files mean no quota") {
  {
    FakeRoot none;
    CHECK(quota_cpus(none.path.c_str()) == 0);
  }
  {
    FakeRoot two;                                    // version 2, the process's own group
    two.write("/proc/self/cgroup", "0::/a/b\n");
    two.write("/sys/fs/cgroup/a/b/cpu.max", "200000 100000\n");
    CHECK(quota_cpus(two.path.c_str()) == 2);
    two.write("/sys/fs/cgroup/a/b/cpu.max", "765000 100000\n");
    CHECK(quota_cpus(two.path.c_str()) == 7);        // 7.65 CPUs pay for 7 threads
    two.write("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    CHECK(quota_cpus(two.path.c_str()) == 3);        // the tighter one above
    two.write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    two.write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
    CHECK(quota_cpus(two.path.c_str()) == 0);
    two.write("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    CHECK(quota_cpus(two.path.c_str()) == 1);        // half a CPU still runs one thread
  }
  {
    FakeRoot container;                              // its own group is the root of the mount
    container.write("/proc/self/cgroup", "0::/\n");
    container.write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    CHECK(quota_cpus(container.path.c_str()) == 4);
  }
  {
    FakeRoot one;                                    // version 1
    one.write("/proc/self/cgroup", "4:cpu,cpuacct:/\n");
    one.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
    one.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    CHECK(quota_cpus(one.path.c_str()) == 2);
    one.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    CHECK(quota_cpus(one.path.c_str()) == 0);
    one.write("/proc/self/cgroup", "9:name=systemd:/x\n3:cpuset:/\n1:cpuacct,cpu:/a/b\n0::/\n");
    one.write("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "350000\n");
    one.write("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
    CHECK(quota_cpus(one.path.c_str()) == 3);        // the process's own group
    one.write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "100000\n");
    one.write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    CHECK(quota_cpus(one.path.c_str()) == 1);
    one.write("/proc/self/cgroup", "1:cpu:strange\nno line\n");
    CHECK(quota_cpus(one.path.c_str()) == 0);
  }
}

TEST_CASE("threads: Lambda's memory size bounds the default, never above the machine") {
  const int machine = default_threads();
  setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1769", 1);
  CHECK(default_threads() == 1);
  setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128", 1);
  CHECK(default_threads() == 1);
  setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "999999", 1);
  CHECK(default_threads() >= machine);   // all of the affinity mask; quotas are not looked for
  setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "nonsense", 1);
  CHECK(default_threads() == machine);
  unsetenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE");
}

TEST_CASE("threads: every share is run once, by whomever") {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> runs(4);
  for (int job = 1; job <= 20000; job++) {
    pool.run([&](int share) { runs[size_t(share)].fetch_add(1, std::memory_order_relaxed); });
    for (auto& r : runs) REQUIRE(r.load() == job);
  }
}
