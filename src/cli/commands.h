// The commands of the binary: each lives in a file of its own name and is listed once, in main.cpp.
#pragma once
#include "src/cli/options.h"

namespace tealight::cli {

struct Command {
  const CommandInfo& info;
  int (*run)(const Args&);   // the exit code; errors are exceptions (main() prints them)
};

extern const Command run_command, chat_command, stdio_command, serve_command, cgi_command, lambda_command, pack_command, inspect_command,
    tokenize_command, template_command, logits_command, bench_command;

}  // namespace tealight::cli
