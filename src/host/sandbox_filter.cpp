// The list of system calls, as a program for the kernel's filter (classic BPF). docs/sandbox.md lists the same for people;
// tests hold the two together.
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <initializer_list>

#include "src/host/sandbox.h"

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034               // linux/fcntl.h
#endif

namespace tealight {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
#endif

constexpr int kFaccessat2 = 439;       // since Linux 5.8; the same number on every architecture

// One word of an argument, masked, must have this value. The kernel hands arguments over as 64 bits, both of these machines
// with the low word first.
struct Check {
  uint32_t word, mask, value;
};
constexpr Check low(uint32_t argument, uint32_t value, uint32_t mask = ~0u) { return {2 * argument, mask, value}; }
constexpr Check high(uint32_t argument, uint32_t value) { return {2 * argument + 1, ~0u, value}; }
using Form = std::initializer_list<Check>;

class FilterWriter {
 public:
  // A call of another architecture's numbers ends the process: it means nothing that this program could have meant. The numbers of
  // x32 have bit 30 set, so that they are unknown numbers here.
  FilterWriter() {
    load(offsetof(seccomp_data, arch));
    jump_if(kArch, 1, 0);
    give(SECCOMP_RET_KILL_PROCESS);
    load(offsetof(seccomp_data, nr));
  }
  void allow(std::initializer_list<int> numbers) {
    for (int n : numbers) {
      jump_if(uint32_t(n), 0, 1);
      give(SECCOMP_RET_ALLOW);
      calls_++;
    }
  }
  // The call passes when all checks of one of the forms hold.
  void allow_if(int number, std::initializer_list<Form> forms, uint32_t otherwise = SECCOMP_RET_TRAP) {
    const size_t head = code_.size();
    jump_if(uint32_t(number), 0, 0);
    for (const Form& form : forms) {
      size_t left = 0;                 // instructions up to the end of this form
      for (const Check& c : form) left += c.mask == ~0u ? 2 : 3;
      left++;
      for (const Check& c : form) {
        load(offsetof(seccomp_data, args) + 4 * c.word);
        if (c.mask != ~0u) code_.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, c.mask));
        left -= c.mask == ~0u ? 2 : 3;
        jump_if(c.value, 0, uint8_t(left));
      }
      give(SECCOMP_RET_ALLOW);
    }
    give(otherwise);
    code_[head].jf = uint8_t(code_.size() - head - 1);
    calls_++;
  }
  void answer(int number, uint32_t error) {
    jump_if(uint32_t(number), 0, 1);
    give(SECCOMP_RET_ERRNO | error);
  }
  std::vector<sock_filter> finish(int& calls) {
    give(SECCOMP_RET_TRAP);
    calls = calls_;
    return std::move(code_);
  }

 private:
  void load(size_t offset) { code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, uint32_t(offset))); }
  void jump_if(uint32_t value, uint8_t yes, uint8_t no) { code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)); }
  void give(uint32_t action) { code_.push_back(BPF_STMT(BPF_RET | BPF_K, action)); }
  std::vector<sock_filter> code_;
  int calls_ = 0;
};

// What every host needs.
void allow_serving(FilterWriter& f) {
  f.allow({SYS_futex, SYS_write, SYS_read, SYS_sched_yield, SYS_clock_gettime});
#ifdef SYS_poll
  f.allow({SYS_poll});
#endif
  f.allow({SYS_ppoll, SYS_readv, SYS_writev, SYS_pread64, SYS_lseek, SYS_close, SYS_fstat});
  f.allow_if(SYS_fcntl, {{low(1, F_GETFD)}, {low(1, F_SETFD)}, {low(1, F_GETFL)}, {low(1, F_SETFL)}, {low(1, F_GET_SEALS)}});
  // Memory, but no new code.
  f.allow({SYS_brk, SYS_munmap, SYS_mremap, SYS_madvise, SYS_mincore});
  f.allow_if(SYS_mmap, {{low(2, 0, PROT_EXEC)}});
  f.allow_if(SYS_mprotect, {{low(2, 0, PROT_EXEC)}});
  // Time, randomness, what is left of the machine.
  f.allow({SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday, SYS_getrandom, SYS_sysinfo, SYS_getrusage,
           SYS_sched_getaffinity, SYS_getpid, SYS_gettid});
  // The rest of a thread's start, which may still be under way.
  f.allow({SYS_set_robust_list});
#ifdef SYS_rseq
  f.allow({SYS_rseq});
#endif
  // Signals of this process, and its end.
#ifdef SYS_alarm
  f.allow({SYS_alarm});
#endif
  f.allow({SYS_setitimer, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_restart_syscall, SYS_exit, SYS_exit_group});
  const uint32_t self = uint32_t(::getpid());
  f.allow_if(SYS_kill, {{low(0, self)}});
  f.allow_if(SYS_tgkill, {{low(0, self)}});
}

// Both sides of a connection. MSG_FASTOPEN would connect past the check of the port.
void allow_sockets(FilterWriter& f) {
  f.allow({SYS_recvfrom, SYS_shutdown, SYS_getsockopt, SYS_getsockname, SYS_getpeername, SYS_epoll_ctl, SYS_epoll_pwait});
#ifdef SYS_epoll_wait
  f.allow({SYS_epoll_wait});
#endif
  f.allow_if(SYS_sendto, {{low(4, 0), high(4, 0), low(3, 0, MSG_FASTOPEN)}});
  f.allow_if(SYS_sendmsg, {{low(2, 0, MSG_FASTOPEN)}});
  f.allow_if(SYS_setsockopt, {{low(1, SOL_SOCKET)}, {low(1, IPPROTO_TCP)}});
}

// TCP alone: Landlock's rule of ports does not hold other protocols (MPTCP, SCTP).
void allow_connections(FilterWriter& f) {
  const Check stream = low(1, SOCK_STREAM, 0xf);
  f.allow_if(SYS_socket, {{low(0, AF_INET), stream, low(2, 0)}, {low(0, AF_INET), stream, low(2, IPPROTO_TCP)},
                          {low(0, AF_INET6), stream, low(2, 0)}, {low(0, AF_INET6), stream, low(2, IPPROTO_TCP)}});
  f.allow({SYS_connect});
}

void allow_threads(FilterWriter& f) {
  constexpr uint32_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                               CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  constexpr uint32_t kDetached = 0x00400000;   // musl sets it; the kernel ignores it
  f.allow_if(SYS_clone, {{low(0, kThread, ~kDetached)}}, SECCOMP_RET_ERRNO | EPERM);
  f.answer(SYS_clone3, ENOSYS);                // its flags lie in memory, out of sight: the C library then uses clone
}

// C libraries make threads and processes with all signals blocked, where a trap would end the process: these fail without a
// line in the log.
void refuse_processes(FilterWriter& f) {
  f.answer(SYS_clone, EPERM);
  f.answer(SYS_clone3, EPERM);
#ifdef SYS_fork
  f.answer(SYS_fork, EPERM);
  f.answer(SYS_vfork, EPERM);
#endif
}

// Files below one open directory: Landlock sees to it that no path leads out.
void allow_files(FilterWriter& f, int dir) {
  const Check here = low(0, uint32_t(dir));
  f.allow_if(SYS_openat, {{here}});
  f.allow_if(SYS_unlinkat, {{here}});
  f.allow_if(SYS_renameat2, {{here, low(2, uint32_t(dir))}});
#ifdef SYS_renameat
  f.allow_if(SYS_renameat, {{here, low(2, uint32_t(dir))}});
#endif
  f.allow_if(SYS_faccessat, {{here}});
  f.allow_if(kFaccessat2, {{here}});   // glibc asks it first
  f.allow_if(SYS_newfstatat, {{here}, {low(3, AT_EMPTY_PATH)}});   // the second is glibc's fstat
  f.allow_if(SYS_utimensat, {{low(1, 0), high(1, 0)}, {here}});    // the first is futimens
  f.allow({SYS_getdents64, SYS_ftruncate, SYS_fallocate, SYS_fsync, SYS_fdatasync, SYS_flock, SYS_pwrite64});
}

}  // namespace

std::vector<sock_filter> sandbox_filter(const SandboxPolicy& policy, bool with_files, int& calls) {
  FilterWriter f;
  allow_serving(f);
  if (policy.connect_port || policy.accept || policy.receive_files) allow_sockets(f);
  if (policy.connect_port) allow_connections(f);
#ifdef SYS_accept
  if (policy.accept) f.allow({SYS_accept});
#endif
  if (policy.accept) f.allow({SYS_accept4});
  if (policy.receive_files) f.allow({SYS_recvmsg});
  if (policy.threads) allow_threads(f);
  refuse_processes(f);
  if (with_files) allow_files(f, policy.cache_dir);
  return f.finish(calls);
}

}  // namespace tealight
