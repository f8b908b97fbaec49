#include <doctest/doctest.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "src/base/error.h"
#include "src/base/mapping.h"
#include "src/base/thread_pool.h"
#include "src/host/sandbox.h"
#include "src/host/stdio.h"
#include "tests/fake_lm.h"

using namespace tealight;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizers = true;
#else
constexpr bool kSanitizers = false;
#endif

// What the kernel would answer to a call, by running the filter.
uint32_t decide(const std::vector<sock_filter>& code, int number, std::vector<uint64_t> args = {}, uint32_t arch = 0) {
#if defined(__x86_64__)
  const uint32_t own = AUDIT_ARCH_X86_64;
#else
  const uint32_t own = AUDIT_ARCH_AARCH64;
#endif
  seccomp_data data = {};
  data.nr = number;
  data.arch = arch ? arch : own;
  for (size_t i = 0; i < args.size(); i++) data.args[i] = args[i];
  uint32_t a = 0;
  for (size_t pc = 0; pc < code.size(); pc++) {
    const sock_filter& i = code[pc];
    switch (i.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        REQUIRE(i.k + 4 <= sizeof data);
        std::memcpy(&a, reinterpret_cast<const char*>(&data) + i.k, 4);
        break;
      case BPF_ALU | BPF_AND | BPF_K: a &= i.k; break;
      case BPF_JMP | BPF_JEQ | BPF_K: pc += a == i.k ? i.jt : i.jf; break;
      case BPF_RET | BPF_K: return i.k;
      default: FAIL("an instruction that is not known: ", i.code);
    }
  }
  FAIL("the filter runs over its end");
  return 0;
}

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW, kTrap = SECCOMP_RET_TRAP;
const SandboxPolicy kEverything = {.connect_port = 9001, .accept = true, .receive_files = true, .threads = true, .cache_dir = 7};

std::vector<sock_filter> filter(const SandboxPolicy& policy, bool files = false) {
  int calls = 0;
  return sandbox_filter(policy, files, calls);
}

// Runs f in a child, which exits with its result, and gives what it wrote to standard error.
template <class F>
int in_child(F f, std::string* err = nullptr) {
  int fds[2];
  REQUIRE(::pipe(fds) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(fds[1], 2);
    ::close(fds[0]);
    ::close(fds[1]);
    int code = 99;
    try {
      code = f();
    } catch (const Error& e) {
      write_all(2, e.message);
      code = 98;
    }
    ::_exit(code);
  }
  ::close(fds[1]);
  std::string text;
  char chunk[1024];
  for (ssize_t n; (n = ::read(fds[0], chunk, sizeof chunk)) > 0;) text.append(chunk, size_t(n));
  ::close(fds[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  INFO(text);
  if (err) *err = text;
  CHECK(WIFEXITED(status));
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

size_t count(std::string_view text, std::string_view word) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(word, at)) != text.npos; at += word.size()) n++;
  return n;
}

// A socket that listens at 127.0.0.1; its port.
int listener(uint16_t& port) {
  const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a = {};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(s, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0);
  REQUIRE(::listen(s, 8) == 0);
  socklen_t size = sizeof a;
  REQUIRE(::getsockname(s, reinterpret_cast<sockaddr*>(&a), &size) == 0);
  port = ntohs(a.sin_port);
  return s;
}

// 0, or the error of a connection to a port of this machine.
int connect_to(uint16_t port) {
  const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s < 0) return errno;
  sockaddr_in a = {};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int error = ::connect(s, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0 ? 0 : errno;
  ::close(s);
  return error;
}

bool denied(long result) { return result < 0 && (errno == EPERM || errno == EACCES); }

int landlock_abi() { return int(std::max(0L, ::syscall(444, nullptr, 0, 1))); }
bool no_sandbox() {
  uint32_t action = SECCOMP_RET_TRAP;  // an emulator of another machine has no filters
  return kSanitizers || ::syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) != 0;
}
bool no_landlock_net() { return no_sandbox() || landlock_abi() < 4; }
bool no_landlock() { return no_sandbox() || landlock_abi() < 1; }

}  // namespace

TEST_CASE("sandbox: words of the option and the variable") {
  ::unsetenv("TEALIGHT_SANDBOX");
  CHECK(sandbox_mode(std::nullopt) == SandboxMode::on);
  CHECK(sandbox_mode("off") == SandboxMode::off);
  CHECK(sandbox_mode("require") == SandboxMode::require);
  ::setenv("TEALIGHT_SANDBOX", "off", 1);
  CHECK(sandbox_mode(std::nullopt) == SandboxMode::off);
  CHECK(sandbox_mode("on") == SandboxMode::on);
  ::setenv("TEALIGHT_SANDBOX", "yes", 1);
  CHECK_THROWS_WITH_AS(sandbox_mode(std::nullopt), "TEALIGHT_SANDBOX: \"yes\" is none of off, on, require", Error);
  ::unsetenv("TEALIGHT_SANDBOX");
  CHECK_THROWS_WITH_AS(sandbox_mode(""), "--sandbox: \"\" is none of off, on, require", Error);
}

TEST_CASE("sandbox filter: calls and their arguments") {
  const auto plain = filter({}), all = filter(kEverything, true);
  for (const auto& f : {plain, all}) {
    CHECK(f.size() < 4096);
    for (int n : {SYS_read, SYS_write, SYS_futex, SYS_munmap, SYS_exit_group, SYS_getrandom}) CHECK(decide(f, n) == kAllow);
    for (int n : {SYS_execve, SYS_execveat, SYS_ptrace, SYS_prctl, SYS_ioctl, SYS_bind, SYS_listen, SYS_seccomp, SYS_memfd_create,
                  SYS_dup3, SYS_process_vm_readv, SYS_setrlimit, SYS_prlimit64, SYS_tkill, SYS_unshare, SYS_bpf, 425 /* io_uring */})
      CHECK(decide(f, n) == kTrap);
    CHECK(decide(f, SYS_mmap, {0, 4096, PROT_READ | PROT_WRITE}) == kAllow);
    CHECK(decide(f, SYS_mmap, {0, 4096, PROT_READ | PROT_EXEC}) == kTrap);
    CHECK(decide(f, SYS_mprotect, {0, 4096, PROT_NONE}) == kAllow);
    CHECK(decide(f, SYS_mprotect, {0, 4096, PROT_EXEC}) == kTrap);
    CHECK(decide(f, SYS_fcntl, {1, F_GETFL}) == kAllow);
    CHECK(decide(f, SYS_fcntl, {1, F_SETFL}) == kAllow);
    CHECK(decide(f, SYS_fcntl, {1, F_SETOWN}) == kTrap);
    CHECK(decide(f, SYS_fcntl, {1, F_DUPFD}) == kTrap);
    CHECK(decide(f, SYS_kill, {uint64_t(::getpid()), SIGTERM}) == kAllow);
    CHECK(decide(f, SYS_kill, {uint64_t(::getppid()), SIGTERM}) == kTrap);
    CHECK(decide(f, SYS_kill, {uint64_t(-1), SIGTERM}) == kTrap);
    CHECK(decide(f, SYS_tgkill, {uint64_t(::getpid()), 5, SIGABRT}) == kAllow);
    CHECK(decide(f, SYS_tgkill, {1, 5, SIGABRT}) == kTrap);
    CHECK(decide(f, SYS_read, {}, 0x40000003 /* i386 */) == SECCOMP_RET_KILL_PROCESS);
    CHECK(decide(f, 0x40000000 | SYS_read) == kTrap);
    CHECK(decide(f, -1) == kTrap);
  }
  for (int n : {SYS_socket, SYS_connect, SYS_accept4, SYS_recvmsg, SYS_sendto, SYS_openat, SYS_unlinkat})
    CHECK(decide(plain, n, {7}) == kTrap);
  for (int n : {SYS_clone, SYS_clone3}) CHECK(decide(plain, n) == (SECCOMP_RET_ERRNO | EPERM));
}

TEST_CASE("sandbox filter: sockets") {
  const auto client = filter({.connect_port = 9001}), server = filter({.accept = true});
  CHECK(decide(client, SYS_accept4) == kTrap);
  CHECK(decide(server, SYS_accept4) == kAllow);
  CHECK(decide(server, SYS_recvmsg) == kTrap);
  CHECK(decide(server, SYS_connect) == kTrap);
  CHECK(decide(server, SYS_socket, {AF_INET, SOCK_STREAM, 0}) == kTrap);
  CHECK(decide(filter({.receive_files = true}), SYS_recvmsg) == kAllow);
  CHECK(decide(client, SYS_connect) == kAllow);
  for (uint64_t family : {AF_INET, AF_INET6})
    for (uint64_t protocol : {0, int(IPPROTO_TCP)})
      CHECK(decide(client, SYS_socket, {family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol}) == kAllow);
  CHECK(decide(client, SYS_socket, {AF_UNIX, SOCK_STREAM, 0}) == kTrap);
  CHECK(decide(client, SYS_socket, {AF_INET, SOCK_DGRAM, 0}) == kTrap);
  CHECK(decide(client, SYS_socket, {AF_INET, SOCK_STREAM, 262 /* MPTCP */}) == kTrap);
  CHECK(decide(client, SYS_socket, {AF_NETLINK, SOCK_RAW, 0}) == kTrap);
  CHECK(decide(client, SYS_sendto, {3, 1, 1, MSG_NOSIGNAL, 0, 0}) == kAllow);
  CHECK(decide(client, SYS_sendto, {3, 1, 1, MSG_FASTOPEN, 0, 0}) == kTrap);
  CHECK(decide(client, SYS_sendto, {3, 1, 1, 0, 0x1000, 16}) == kTrap);
  CHECK(decide(client, SYS_sendto, {3, 1, 1, 0, uint64_t(1) << 32, 16}) == kTrap);
  CHECK(decide(client, SYS_sendmsg, {3, 1, MSG_FASTOPEN}) == kTrap);
  CHECK(decide(client, SYS_setsockopt, {3, IPPROTO_TCP, 1}) == kAllow);
  CHECK(decide(client, SYS_setsockopt, {3, IPPROTO_IP, 1}) == kTrap);
}

TEST_CASE("sandbox filter: threads and the cache's directory") {
  constexpr uint64_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                               CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  const auto threads = filter({.threads = true}), files = filter({.cache_dir = 7}, true);
  CHECK(decide(threads, SYS_clone, {kThread}) == kAllow);
  CHECK(decide(threads, SYS_clone, {kThread | 0x400000}) == kAllow);
  CHECK(decide(threads, SYS_clone, {kThread | CLONE_NEWUSER}) == (SECCOMP_RET_ERRNO | EPERM));
  CHECK(decide(threads, SYS_clone, {SIGCHLD}) == (SECCOMP_RET_ERRNO | EPERM));
  CHECK(decide(threads, SYS_clone3) == (SECCOMP_RET_ERRNO | ENOSYS));
  CHECK(decide(files, SYS_openat, {7}) == kAllow);
  CHECK(decide(files, SYS_openat, {8}) == kTrap);
  CHECK(decide(files, SYS_openat, {uint64_t(AT_FDCWD)}) == kTrap);
  CHECK(decide(files, SYS_renameat2, {7, 0, 7}) == kAllow);
  CHECK(decide(files, SYS_renameat2, {7, 0, 8}) == kTrap);
  CHECK(decide(files, SYS_unlinkat, {7}) == kAllow);
  CHECK(decide(files, SYS_unlinkat, {uint64_t(AT_FDCWD)}) == kTrap);
  CHECK(decide(files, SYS_faccessat, {7}) == kAllow);
  CHECK(decide(files, SYS_faccessat, {uint64_t(AT_FDCWD)}) == kTrap);
  CHECK(decide(files, SYS_utimensat, {9, 0}) == kAllow);
  CHECK(decide(files, SYS_utimensat, {9, 0x1000}) == kTrap);
#ifdef SYS_open
  CHECK(decide(files, SYS_open) == kTrap);
#endif
}

// docs/sandbox.md names exactly the calls of the filter.
TEST_CASE("sandbox filter: the page lists it") {
#define CALL(name) {#name, SYS_##name}
  const std::pair<std::string_view, int> names[] = {
      CALL(read), CALL(readv), CALL(write), CALL(writev), CALL(pread64), CALL(lseek), CALL(close), CALL(fstat), CALL(fcntl),
      CALL(ppoll), CALL(brk), CALL(munmap), CALL(mremap), CALL(madvise), CALL(mincore), CALL(mmap), CALL(mprotect), CALL(futex),
      CALL(sched_yield), CALL(rseq), CALL(set_robust_list), CALL(clock_gettime), CALL(clock_getres), CALL(clock_nanosleep),
      CALL(nanosleep), CALL(gettimeofday), CALL(getrandom), CALL(sysinfo), CALL(getrusage), CALL(sched_getaffinity), CALL(getpid),
      CALL(gettid), CALL(setitimer), CALL(rt_sigaction), CALL(rt_sigprocmask), CALL(rt_sigreturn), CALL(restart_syscall), CALL(kill), CALL(tgkill),
      CALL(exit), CALL(exit_group), CALL(recvfrom), CALL(shutdown), CALL(getsockopt), CALL(getsockname), CALL(getpeername),
      CALL(sendto), CALL(sendmsg), CALL(setsockopt), CALL(epoll_ctl), CALL(epoll_pwait), CALL(socket), CALL(connect),
      CALL(accept), CALL(accept4), CALL(recvmsg), CALL(clone), CALL(openat), CALL(unlinkat), CALL(renameat2), CALL(newfstatat), CALL(faccessat), {"faccessat2", 439},
      CALL(utimensat), CALL(getdents64), CALL(ftruncate), CALL(fallocate), CALL(fsync), CALL(fdatasync), CALL(flock), CALL(pwrite64),
#ifdef SYS_renameat
      CALL(renameat),
#endif
#ifdef SYS_poll
      CALL(poll), CALL(epoll_wait), CALL(alarm),
#endif
  };
#undef CALL
  int calls = 0;
  const auto code = sandbox_filter(kEverything, true, calls);
  CHECK(calls == int(std::size(names)));
  const std::string page = read_text_file("docs/sandbox.md", 1 << 20);
  for (const auto& [name, number] : names) {
    INFO(std::string(name));
    CHECK(page.find(cat("`", name, "`")) != page.npos);
    bool known = false;                // the filter has an instruction for the number
    for (const sock_filter& i : code) known |= i.code == (BPF_JMP | BPF_JEQ | BPF_K) && i.k == uint32_t(number);
    CHECK(known);
  }
}

TEST_CASE("sandbox: files, programs and connections fail while serving goes on" * doctest::skip(no_sandbox())) {
  uint16_t other = 0;
  const int server = listener(other);
  int in[2], out[2];
  REQUIRE(::pipe(in) == 0);
  REQUIRE(::pipe(out) == 0);
  const std::string request = "{\"prompt\":\"a\",\"max_tokens\":4}\n";
  REQUIRE(write_all(in[1], request));
  ::close(in[1]);
  std::string err;
  const int code = in_child([&] {
    ThreadPool pool(2);
    const Sandbox s = enter_sandbox({}, SandboxMode::on, [&] { pool.start_now(); });
    if (!s.no_new_privs || s.calls == 0) return 1;
    if (!denied(::open("/etc/passwd", O_RDONLY))) return 2;
    if (!denied(::open("/tmp/tealight-sandbox", O_CREAT | O_WRONLY, 0600))) return 3;
    char* const argv[] = {const_cast<char*>("/bin/true"), nullptr};
    if (!denied(::execve(argv[0], argv, argv + 1))) return 4;
    if (connect_to(other) != EPERM) return 5;
    if (!denied(::fork())) return 6;
    if (!denied(::syscall(SYS_prctl, PR_SET_DUMPABLE, 1))) return 7;
    if (!denied(::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0)) return 8;
    if (!denied(::kill(::getppid(), SIGTERM))) return 9;
    std::atomic<int> denied_there = 0;
    pool.run([&](int) { denied_there += denied(::open("/etc/passwd", O_RDONLY)); });
    if (denied_there != 2) return 10;
    FakeLm lm;
    StdioHost host(lm, [&](std::string_view line) { return write_all(out[1], line); });
    LineReader reader(in[0], 1 << 20);
    std::string_view line;
    if (reader.next(line) != LineReader::Status::line || !host.answer(line)) return 11;
    return 0;
  }, &err);
  CHECK(code == 0);
  ::close(out[1]);
  std::string answer(4096, 0);
  const ssize_t n = ::read(out[0], answer.data(), answer.size());
  CHECK(answer.substr(0, size_t(std::max<ssize_t>(n, 0))).find("\"finish_reason\"") != answer.npos);
  CHECK(err.starts_with("tealight: sandbox: no_new_privs, seccomp ("));
  ::close(out[0]);
  ::close(in[0]);
  ::close(server);
}

TEST_CASE("sandbox: a refused call is logged once, with its number" * doctest::skip(no_sandbox())) {
  std::string err;
  const int code = in_child([&] {
    enter_sandbox({}, SandboxMode::on, {});
    for (int i = 0; i < 3; i++) {
      errno = 0;
      if (::syscall(SYS_memfd_create, "x", 0) != -1 || errno != EPERM) return 1;
      if (::syscall(0x40000000 | 5000) != -1 || errno != EPERM) return 2;
      if (::syscall(5000) != -1 || errno != EPERM) return 3;
    }
    return 0;
  }, &err);
  CHECK(code == 0);
  CHECK(count(err, cat("tealight: sandbox: refused system call ", SYS_memfd_create, "\n")) == 1);
  CHECK(count(err, "refused system call") == 2);  // numbers that no kernel has share a place
}

TEST_CASE("sandbox: connections go to one port alone" * doctest::skip(no_landlock_net())) {
  uint16_t api = 0, other = 0;
  const int one = listener(api), two = listener(other);
  std::string err;
  const int code = in_child([&] {
    enter_sandbox({.connect_port = api}, SandboxMode::require, {});
    if (connect_to(api) != 0) return 1;
    if (connect_to(other) != EACCES) return 2;
    const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a = {};
    a.sin_family = AF_INET;
    if (!denied(::bind(s, reinterpret_cast<sockaddr*>(&a), sizeof a))) return 3;
    if (!denied(::socket(AF_UNIX, SOCK_STREAM, 0))) return 4;
    return 0;
  }, &err);
  CHECK(code == 0);
  CHECK(err.find(cat("landlock abi ", landlock_abi())) != err.npos);
  ::close(one);
  ::close(two);
}

TEST_CASE("sandbox: the cache's directory and nothing else" * doctest::skip(no_landlock())) {
  char folder[] = "/tmp/tealight-sandbox-XXXXXX";
  REQUIRE(::mkdtemp(folder));
  const int dir = ::open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(dir >= 0);
  const int code = in_child([&] {
    ThreadPool pool(2);
    const Sandbox s = enter_sandbox({.cache_dir = dir}, SandboxMode::on, [&] { pool.start_now(); });
    if (!s.cache) return 1;
    const int fd = ::openat(dir, "new", O_CREAT | O_RDWR | O_EXCL, 0600);
    struct stat st;
    if (fd < 0 || ::ftruncate(fd, 4096) != 0 || ::write(fd, "x", 1) != 1 || ::fsync(fd) != 0 || ::fstat(fd, &st) != 0 || st.st_size != 4096) return 2;
    if (::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED) return 3;
    if (::renameat(dir, "new", dir, "name") != 0 || ::fstatat(dir, "name", &st, 0) != 0) return 4;
    bool out_of_it = false;
    pool.run([&](int) {
      if (!denied(::openat(dir, "/etc/passwd", O_RDONLY)) || !denied(::openat(dir, "../../etc/passwd", O_RDONLY))) out_of_it = true;
    });
    if (out_of_it) return 5;
    if (!denied(::open("/etc/passwd", O_RDONLY)) || !denied(::unlinkat(dir, "/tmp/tealight-sandbox-none", 0) == 0 ? 0 : errno == ENOENT ? (errno = EPERM, -1) : -1)) return 6;
    if (::unlinkat(dir, "name", 0) != 0) return 7;
    return 0;
  });
  CHECK(code == 0);
  ::close(dir);
  CHECK(::rmdir(folder) == 0);
}

TEST_CASE("sandbox: threads may start later when the policy says so" * doctest::skip(no_sandbox())) {
  const auto thread_runs = [](bool allowed) {
    return in_child([&] {
      enter_sandbox({.threads = allowed}, SandboxMode::on, {});
      pthread_t t;
      const int error = ::pthread_create(&t, nullptr, [](void*) -> void* { return nullptr; }, nullptr);
      if (error) return error;
      return ::pthread_join(t, nullptr);
    });
  };
  CHECK(thread_runs(true) == 0);
  CHECK(thread_runs(false) == EPERM);
}

TEST_CASE("sandbox: the process gives no core and no privileges" * doctest::skip(no_sandbox())) {
  CHECK(in_child([] {
    int at_start = -1;
    // threads start before the filter: the rest of what it set can still be asked for
    enter_sandbox({}, SandboxMode::on, [&] {
      rlimit core;
      at_start = ::prctl(PR_GET_DUMPABLE) == 0 && ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 &&
                 ::getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_cur == 0 && core.rlim_max == 0;
    });
    return at_start == 1 ? 0 : 1;
  }) == 0);
}

// A kernel without seccomp or Landlock is a filter that refuses the two.
TEST_CASE("sandbox: on takes what there is, require does not" * doctest::skip(no_sandbox())) {
  const auto without = [](int number, SandboxMode mode, std::string& err) {
    return in_child([&] {
      ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      const sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, unsigned(number), 0, 1),
                                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
      const sock_fprog program = {4, const_cast<sock_filter*>(code)};
      if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) return 97;
      bool started = false;
      const Sandbox s = enter_sandbox({}, mode, [&] { started = true; });
      return started ? (s.calls ? 1 : 0) + (s.landlock_abi ? 2 : 0) : 96;
    }, &err);
  };
  std::string err;
  CHECK(without(SYS_seccomp, SandboxMode::require, err) == 98);
  CHECK(err.find("sandbox: required, but this kernel gives less: no_new_privs, no seccomp (Function not implemented)") != err.npos);
  CHECK(without(444, SandboxMode::require, err) == 98);
  CHECK(err.find("no landlock (Function not implemented)") != err.npos);
  CHECK(without(444, SandboxMode::on, err) == 1);
  CHECK(err.find("no landlock (Function not implemented)\n") != err.npos);
  CHECK((without(SYS_seccomp, SandboxMode::on, err) & 1) == 0);
}

TEST_CASE("sandbox: off starts the threads and says so") {
  std::string err;
  CHECK(in_child([] {
    bool started = false;
    const Sandbox s = enter_sandbox({.cache_dir = 3}, SandboxMode::off, [&] { started = true; });
    return started && s.cache && s.calls == 0 && ::open("/dev/null", O_RDONLY) >= 0 ? 0 : 1;
  }, &err) == 0);
  CHECK(err == "tealight: sandbox: off\n");
}
