#include "src/host/sandbox.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/task/prefix_cache.h"

namespace tealight {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizers = true;
#elif defined(__has_feature)
constexpr bool kSanitizers = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer);
#else
constexpr bool kSanitizers = false;
#endif

// Landlock (linux/landlock.h), written out: headers of the system may be older than its kernel.
constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;   // the same numbers on every architecture
constexpr unsigned kAskVersion = 1;
constexpr int kRulePathBeneath = 1, kRuleNetPort = 2;
constexpr uint64_t kWriteFile = 1 << 1, kReadFile = 1 << 2, kReadDir = 1 << 3, kRemoveFile = 1 << 5, kMakeReg = 1 << 8,
                   kTruncate = 1 << 14;
constexpr uint64_t kBindTcp = 1, kConnectTcp = 2;
constexpr uint64_t kScopeAll = 3;                // abstract UNIX sockets and signals stay within
constexpr unsigned kRestrictAllThreads = 1 << 3;
constexpr int kAbiTruncate = 3, kAbiNet = 4, kAbiIoctl = 5, kAbiScope = 6, kAbiAllThreads = 8;

struct Ruleset {
  uint64_t files, net, scoped;
};
struct __attribute__((packed)) PathRule {
  uint64_t access;
  int32_t dir;
};
struct PortRule {
  uint64_t access, port;
};

uint64_t file_rights(int abi) {
  const int n = abi >= kAbiIoctl ? 16 : abi >= kAbiTruncate ? 15 : abi == 2 ? 14 : 13;   // rights that this version knows
  return (uint64_t(1) << n) - 1;
}

bool add_rules(int ruleset, const SandboxPolicy& policy, int abi) {
  if (policy.cache_dir >= 0) {
    const PathRule rule = {(kReadFile | kWriteFile | kReadDir | kRemoveFile | kMakeReg | kTruncate) & file_rights(abi), policy.cache_dir};
    if (::syscall(kAddRule, ruleset, kRulePathBeneath, &rule, 0) != 0) return false;
  }
  if (policy.connect_port && abi >= kAbiNet) {
    const PortRule rule = {kConnectTcp, policy.connect_port};
    if (::syscall(kAddRule, ruleset, kRuleNetPort, &rule, 0) != 0) return false;
  }
  return true;
}

// Gives up files and TCP ports but those of the policy. Returns the version that is active, 0 for none (errno says why).
int enter_landlock(const SandboxPolicy& policy) {
  const long version = ::syscall(kCreateRuleset, nullptr, 0, kAskVersion);
  if (version <= 0) return 0;
  const int abi = int(version);
  const Ruleset rights = {file_rights(abi), abi >= kAbiNet ? kBindTcp | kConnectTcp : 0, abi >= kAbiScope ? kScopeAll : 0};
  const size_t size = abi >= kAbiScope ? 24 : abi >= kAbiNet ? 16 : 8;
  const int ruleset = int(::syscall(kCreateRuleset, &rights, size, 0));
  if (ruleset < 0) return 0;
  const bool done = add_rules(ruleset, policy, abi) &&
                    ::syscall(kRestrictSelf, ruleset, abi >= kAbiAllThreads ? kRestrictAllThreads : 0u) == 0;
  const int error = errno;
  ::close(ruleset);
  errno = error;
  return done ? abi : 0;
}

// Each number is written once; those that no kernel has yet share a place.
constexpr unsigned kNumbers = 1024;
std::atomic<uint32_t> refused[kNumbers / 32];

bool first_time(unsigned number) {
  const unsigned n = number < kNumbers ? number : kNumbers - 1;
  const uint32_t bit = 1u << (n % 32);
  return !(refused[n / 32].fetch_or(bit) & bit);
}

// A call that is not on the list returns EPERM to its caller. Runs as a signal handler.
void on_refused(int, siginfo_t* info, void* context) {
  constexpr int kFromSeccomp = 1;
  if (info->si_code != kFromSeccomp) return;
  const int saved = errno;
  if (first_time(unsigned(info->si_syscall))) {
    // By hand: nothing here may allocate or lock.
    const bool json = log_is_json();
    char line[128], digits[12];
    size_t length = 0, n = 0;
    const auto append = [&](const char* text) {
      while (*text) line[length++] = *text++;
    };
    append(json ? "{\"level\":\"WARN\",\"message\":\"" : "tealight: ");
    append("sandbox: refused system call ");
    unsigned number = unsigned(info->si_syscall);
    do digits[n++] = char('0' + number % 10);
    while (number /= 10);
    while (n) line[length++] = digits[--n];
    append(json ? "\"}\n" : "\n");
    [[maybe_unused]] const ssize_t written = ::write(2, line, length);
  }
  auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  machine.gregs[REG_RAX] = -EPERM;
#elif defined(__aarch64__)
  machine.regs[0] = static_cast<unsigned long long>(-EPERM);
#endif
  errno = saved;
}

// Installs the filter for all threads. Without FILTER_FLAG_SPEC_ALLOW kernels before 5.16 would slow every memory access down for fear
// of code that this process does not run. Returns 0 or the error.
int enter_seccomp(const std::vector<sock_filter>& filter) {
  struct sigaction action = {};
  action.sa_sigaction = on_refused;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
  if (::sigaction(SIGSYS, &action, nullptr) != 0) return errno;
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
  constexpr unsigned kAllThreads = SECCOMP_FILTER_FLAG_TSYNC, kNoSlowdown = 1 << 2;
  for (const unsigned flags : {kAllThreads | kNoSlowdown, kAllThreads}) {
    const long result = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    if (result == 0) return 0;
    if (result > 0) return EBUSY;      // the id of a thread that has a filter of its own
    if (errno != EINVAL) break;        // a kernel before 4.17 does not know the flag
  }
  return errno;
}

std::string missing(std::string_view what, int error) { return cat("no ", what, " (", std::strerror(error), ")"); }

}  // namespace

SandboxMode sandbox_mode(std::optional<std::string_view> option) {
  const char* variable = std::getenv("TEALIGHT_SANDBOX");
  const std::string_view word = option ? *option : variable ? variable : "on";
  if (word == "on") return SandboxMode::on;
  if (word == "off") return SandboxMode::off;
  if (word == "require") return SandboxMode::require;
  fail(Code::usage, option ? "--sandbox" : "TEALIGHT_SANDBOX", ": ", quoted(word), " is none of off, on, require");
}

Sandbox enter_sandbox(const SandboxPolicy& policy, SandboxMode mode, const std::function<void()>& start_threads) {
  Sandbox s;
  if (kSanitizers && mode == SandboxMode::require)
    fail(Code::unsupported, "sandbox: this build has sanitizers, which need more system calls than serving does");
  if (kSanitizers || mode == SandboxMode::off) {
    if (start_threads) start_threads();
    s.text = "off";
    log_line(LogLevel::info, "sandbox: off");
    return s;
  }

  // What dumps and other processes of the user could take from memory: credentials, prompts.
  const rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  s.no_new_privs = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
  s.landlock_abi = enter_landlock(policy);
  const int landlock_error = errno;
  if (start_threads) start_threads();
#ifdef __GLIBC__
  ::tzset();                           // reads a file once, even for times in UTC
#endif
  int calls = 0;
  const int seccomp_error = enter_seccomp(sandbox_filter(policy, policy.cache_dir >= 0 && s.landlock_abi > 0, calls));
  if (seccomp_error == 0) s.calls = calls;
  s.cache = s.landlock_abi > 0 || s.calls == 0;

  const bool ports_open = policy.connect_port && s.landlock_abi < kAbiNet;
  s.text = cat(s.no_new_privs ? "no_new_privs, " : "",
               s.calls ? cat("seccomp (", s.calls, " calls), ") : missing("seccomp", seccomp_error) + ", ",
               s.landlock_abi ? cat("landlock abi ", s.landlock_abi) : missing("landlock", landlock_error),
               s.landlock_abi && ports_open ? ", connections to any port" : "");
  if (mode == SandboxMode::require && (!s.no_new_privs || !s.calls || !s.landlock_abi || ports_open))
    fail(Code::unsupported, "sandbox: required, but this kernel gives less: ", s.text);
  log_line(LogLevel::info, cat("sandbox: ", s.text));
  if (policy.cache_dir >= 0 && !s.cache) warn("sandbox: the cache is not used: without Landlock its directory cannot be told from others");
  return s;
}

Sandbox enter_sandbox(Lm& lm, SandboxPolicy policy, SandboxMode mode, const std::function<void()>& also) {
  PrefixCache* cache = lm.prefix_cache();
  if (cache) policy.cache_dir = cache->fd();
  Sandbox s = enter_sandbox(policy, mode, [&] {
    lm.warm_threads();
    if (also) also();
  });
  if (cache && !s.cache) cache->close();
  return s;
}

}  // namespace tealight
