// The table of commands, and what is common to all: help, version, errors and exit codes.
#include <cstdlib>
#include <exception>
#include <new>

#include "kernels/kernels.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/mapping.h"
#include "src/cli/commands.h"
#include "src/host/detect.h"
#include "src/host/stdio.h"

namespace tealight::cli {
namespace {

constexpr const Command* kCommands[] = {
    &run_command,
    &chat_command,
    &stdio_command,
    &serve_command,
    &cgi_command,
    &lambda_command,
    &pack_command,
    &inspect_command,
    &tokenize_command,
    &template_command,
    &logits_command,
    &bench_command,
};

constexpr int kDone = 0, kFailed = 1, kUsage = 2;

const Command* find_command(std::string_view name) {
  for (const Command* c : kCommands)
    if (name == c->info.name) return c;
  return nullptr;
}

std::string overview() {
  std::string s = "usage: tealight COMMAND [arguments]\n\nNeural networks in one small binary.\n\ncommands:\n";
  for (const Command* c : kCommands) {
    std::string left = c->info.name;
    left.resize(12, ' ');
    s += cat("  ", left, c->info.summary, "\n");
  }
  s += "\n'tealight COMMAND --help' says more about one. 'tealight --version' prints the version.\n"
       "TEALIGHT_ISA=ref|avx2|avxvnni|avx512|amx (on ARM ref|neon|i8mm) in the environment forces an instruction set.\n"
       "Exit codes: 0 done, 1 failed (file, model, request), 2 wrong usage.\n";
  return s;
}

int wrong_usage(std::string_view message, std::string_view command) {
  log_line(cat(message, "\ntry 'tealight ", command, command.empty() ? "" : " ", "--help'"));
  return kUsage;
}

int run(const Command& command, std::span<char* const> argv) {
  explain_bus_errors();
  const Args args(command.info, argv);
  if (args.wants_help()) return write_all(1, help_text(command.info)) ? kDone : kFailed;
  if (const char* forced = std::getenv("TEALIGHT_ISA")) {
    const char* error = nullptr;
    if (!kernels::choose(forced, &error)) {
      log_line(error);
      return kUsage;
    }
  }
  return command.run(args);
}

int run_or_explain(const Command& command, std::span<char* const> argv) {
  try {
    return run(command, argv);
  } catch (const Error& e) {
    if (e.code == Code::usage) return wrong_usage(e.message, command.info.name);
    log_line(e.message);
  } catch (const std::bad_alloc&) {
    log_line("not enough memory");
  } catch (const std::exception& e) {
    log_line(e.what());
  }
  return kFailed;
}

// Without a command the environment says which host started this process: the executable is its function. 0, or the exit code.
int find_host(const Command*& command) {
  try {
    switch (detect_host().kind) {
      case HostKind::lambda: command = &lambda_command; break;
      case HostKind::http: command = &serve_command; break;
      case HostKind::cgi:
      case HostKind::pipe: command = &cgi_command; break;
      case HostKind::none: break;
    }
    return 0;
  } catch (const Error& e) {
    log_line(e.message);
    return kUsage;
  }
}

}  // namespace
}  // namespace tealight::cli

int main(int argc, char** argv) {
  using namespace tealight::cli;
  std::string_view word = argc > 1 ? argv[1] : "";
  if (word == "--version") return tealight::write_all(1, "tealight " TEALIGHT_VERSION "\n") ? kDone : kFailed;
  if (word == "--help" || word == "-h" || (word == "help" && argc == 2))
    return tealight::write_all(1, overview()) ? kDone : kFailed;
  if (argc < 2 || word.starts_with('-')) {
    const Command* host = nullptr;
    if (const int code = find_host(host)) return code;
    if (host) return run_or_explain(*host, {argv + 1, size_t(argc - 1)});
  }
  if (argc < 2) return wrong_usage("no command given", "");
  const bool help = word == "help";
  if (help) word = argv[2];
  const Command* command = find_command(word);
  if (!command) return wrong_usage(tealight::cat(tealight::quoted(word), " is no command"), "");
  if (help) return tealight::write_all(1, help_text(command->info)) ? kDone : kFailed;
  return run_or_explain(*command, {argv + 2, size_t(argc - 2)});
}
