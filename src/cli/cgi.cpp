// cgi: answer one request.
#include "src/base/error.h"
#include "src/cli/commands.h"
#include "src/cli/model_options.h"
#include "src/host/cgi.h"
#include "src/host/detect.h"
#include "src/host/lm_handler.h"
#include "src/host/sandbox.h"

namespace tealight::cli {
namespace {

constexpr auto kOptions = join(kModelOptions, kDraftOptions, kSandboxOptions);
constexpr CommandInfo kInfo = {"cgi", "[MODEL]", "answer one request: CGI, or standard input to standard output",
                               "With GATEWAY_INTERFACE in the environment the request is one of CGI (RFC 3875); else it is the JSON on standard\n"
                               "input up to its end (OpenFaaS' classic watchdog), and an error is exit code 1.",
                               kOptions};

// Loads the model with the call, so that what goes wrong is its answer.
class LoadingHandler final : public Handler {
 public:
  explicit LoadingHandler(const Args& args) : args_(args) {}
  Answer handle(const Call& call) override {
    size_t next = 0;
    const std::string path = model_path(args_, kInfo, next);
    if (next < args_.positional().size()) fail(Code::usage, "cgi: unexpected argument ", quoted(args_.positional()[next]));
    const std::unique_ptr<Lm> lm = Lm::load(path, load_options(args_));
    enter_sandbox(*lm, {}, sandbox_mode(args_.text("sandbox")));
    return LmHandler(*lm).handle(call);
  }

 private:
  const Args& args_;
};

int run(const Args& args) {
  LoadingHandler handler(args);
  return detect_host().kind == HostKind::cgi ? serve_cgi(handler, 0, 1) : serve_pipe(handler, 0, 1);
}

}  // namespace

const Command cgi_command = {kInfo, run};

}  // namespace tealight::cli
