// lambda: the custom runtime of AWS Lambda.
#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/cli/model_options.h"
#include "src/host/lambda/lambda.h"
#include "src/host/lm_handler.h"
#include "src/pack/pack_file.h"

namespace tealight::cli {
namespace {

constexpr char kDetails[] =
    "This is what happens without a command where AWS_LAMBDA_RUNTIME_API is set: the executable, named bootstrap, is the\n"
    "function. MODEL may also be named by TEALIGHT_MODEL; a packed executable needs none.\n"
    "Events: a request as stdio takes it; HTTP events of function URLs, API Gateway and load balancers (POST\n"
    "/v1/chat/completions, /v1/completions or /; GET /v1/models, /health); SQS batches, whose failed messages are\n"
    "named; scheduled events, {\"ping\":true} and {\"warmer\":true} keep the function warm and cost nothing.\n"
    "With TEALIGHT_INVOKE_MODE=response_stream (or AWS_LWA_INVOKE_MODE) requests with \"stream\":true are streamed;\n"
    "HTTP front ends must be set up for it, too. AWS_LAMBDA_LOG_FORMAT, AWS_LAMBDA_LOG_LEVEL,\n"
    "AWS_LAMBDA_MAX_CONCURRENCY and SnapStart's hooks are followed.";
constexpr auto kOptions = join(kModelOptions, kDraftOptions, kSandboxOptions);
constexpr CommandInfo kInfo = {"lambda", "[MODEL]", "be the custom runtime of AWS Lambda", kDetails, kOptions};

// The model with its handler.
class Function final : public Handler {
 public:
  explicit Function(std::unique_ptr<Lm> lm) : lm_(std::move(lm)), handler_(*lm_) {}
  Answer handle(const Call& call) override { return handler_.handle(call); }

 private:
  std::unique_ptr<Lm> lm_;
  LmHandler handler_;
};

int run(const Args& args) {
  lambda::set_up_logs();
  const auto load = [&](bool eager) -> lambda::Loading {
    size_t next = 0;
    const std::string path = model_path(args, kInfo, next);
    if (next < args.positional().size()) fail(Code::usage, "lambda: unexpected argument ", quoted(args.positional()[next]));
    LoadOptions options = load_options(args);
    options.defer_checks = !eager;
    const ModelFiles files = open_model(path);
    const auto finish = [=]() -> lambda::Loaded {
      std::unique_ptr<Lm> loaded = Lm::load(path, files, options);
      Lm& lm = *loaded;
      auto function = std::make_unique<Function>(std::move(loaded));
      // A snapshot is worth more with the weights and the tokenizer in memory: one token touches both.
      if (eager) function->handle({.body = R"({"prompt":"a","max_tokens":1})"});
      return {std::move(function), &lm};
    };
    // The own model was loaded when it was packed, and opening it has compared its checksums.
    return {finish, path == own_executable() && options.cache_dir.empty()};
  };
  return lambda::serve(load, {"tealight/" TEALIGHT_VERSION, sandbox_mode(args.text("sandbox"))});
}

}  // namespace

const Command lambda_command = {kInfo, run};

}  // namespace tealight::cli
