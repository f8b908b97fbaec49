// AWS Lambda's custom runtime: the loop that fetches events from the Runtime API and posts answers.
// https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
#pragma once
#include <functional>
#include <memory>
#include <string_view>

#include "src/host/handler.h"
#include "src/host/sandbox.h"

namespace tealight::lambda {

// What answers the calls, and the model whose threads and cache stay in the sandbox (null: none).
struct Loaded {
  std::unique_ptr<Handler> handler;
  Lm* lm = nullptr;
};
// Loading in two steps. The first one finds out whether it can be done; where that is certain, the second one may come after
// the first event has been asked for, while the platform looks for it.
struct Loading {
  std::function<Loaded()> finish;
  bool certain = false;                // a packed file whose sections have been checked
};
// `eager`: a snapshot of the process is taken afterwards, so whatever can be made ready is.
using Load = std::function<Loading(bool eager)>;

// Sets logs up as AWS_LAMBDA_LOG_FORMAT and AWS_LAMBDA_LOG_LEVEL say. Before anything is logged.
void set_up_logs();

struct Options {
  std::string_view agent;              // the User-Agent
  SandboxMode sandbox = SandboxMode::on;
};

// Serves until the API asks to end it. Errors of `load` are reported to the API. Ends the process rather than return; SIGTERM does so
// at once, but for an answer that is being posted. Reads AWS_LAMBDA_RUNTIME_API (Code::usage when that is no address),
// AWS_LAMBDA_MAX_CONCURRENCY, AWS_LAMBDA_INITIALIZATION_TYPE, and AWS_LWA_INVOKE_MODE or TEALIGHT_INVOKE_MODE (response_stream
// lets answers be streamed), and sets _X_AMZN_TRACE_ID for each call.
int serve(const Load& load, const Options& options);

}  // namespace tealight::lambda
