// What a process gives up once it only serves: new privileges, core dumps, files, programs, connections, and all system calls
// that serving does not need. docs/sandbox.md has the list and the reasons.
#pragma once
#include <linux/filter.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tealight {

class Lm;

// What serving needs beyond reading, writing, computing, memory and waiting.
struct SandboxPolicy {
  uint16_t connect_port = 0;           // new TCP connections go to this port alone; 0: none are made
  bool accept = false;                 // connections are accepted at sockets that listen already
  bool receive_files = false;          // messages of UNIX sockets may bring descriptors (shared memory)
  bool threads = false;                // threads start later, too
  int cache_dir = -1;                  // an open directory whose files are read, made, renamed and removed; -1: none
};

enum class SandboxMode { off, on, require };

// The option's value, else TEALIGHT_SANDBOX from the environment, else `on`. Errors: Code::usage.
SandboxMode sandbox_mode(std::optional<std::string_view> option);

struct Sandbox {
  bool no_new_privs = false;
  int calls = 0;                       // system calls on the list; 0: no filter
  int landlock_abi = 0;                // 0: no Landlock
  // False when a directory was asked for and cannot be used: without Landlock a call that opens files is not on the list.
  bool cache = true;
  std::string text;                    // "no_new_privs, seccomp (41 calls), landlock abi 7"
};

// Locks the process down for good, and logs what is active. When to call it: after the model is loaded, and after everything
// that the host keeps is open (sockets that listen, the connection to the Runtime API, pipes, epoll, event descriptors, signal
// handlers, the cache's directory); before the first byte of a stranger is read. Nothing can be opened, bound or unlinked
// afterwards.
// `start_threads` starts all threads that serving needs (Lm::warm_threads, a Scheduler). It is called between the two
// steps, in every mode: Landlock holds the calling thread and those that it starts, while the filter of system calls reaches all
// threads. (From Landlock ABI 8 on both reach all.)
// SandboxMode::on applies what this kernel has. Errors: Code::unsupported for SandboxMode::require when something is missing.
Sandbox enter_sandbox(const SandboxPolicy& policy, SandboxMode mode, const std::function<void()>& start_threads);
// The same for a process that serves a model: the policy's cache_dir and the threads are the model's, `also` starts others.
Sandbox enter_sandbox(Lm& lm, SandboxPolicy policy, SandboxMode mode, const std::function<void()>& also = {});

// The filter alone, for tests. with_files: the calls for the cache's directory are on the list. Returns their number in `calls`.
std::vector<sock_filter> sandbox_filter(const SandboxPolicy& policy, bool with_files, int& calls);

}  // namespace tealight
