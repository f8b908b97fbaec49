// stdio: answer requests over standard input and output.
#include "src/base/error.h"
#include "src/cli/commands.h"
#include "src/cli/model_options.h"
#include "src/host/sandbox.h"
#include "src/host/stdio.h"

namespace tealight::cli {
namespace {

constexpr auto kOptions = join(kModelOptions, kDraftOptions, kSandboxOptions);
constexpr CommandInfo kInfo = {"stdio", "MODEL", "answer JSON requests, one a line, over standard input and output", kProtocolHelp,
                               kOptions};

int run(const Args& args) {
  size_t next = 0;
  const std::string path = model_path(args, kInfo, next);
  if (next < args.positional().size()) fail(Code::usage, "stdio: unexpected argument ", quoted(args.positional()[next]));
  const SandboxMode sandbox = sandbox_mode(args.text("sandbox"));
  const std::unique_ptr<Lm> lm = Lm::load(path, load_options(args));
  return serve_stdio(*lm, 0, 1, sandbox);
}

}  // namespace

const Command stdio_command = {kInfo, run};

}  // namespace tealight::cli
