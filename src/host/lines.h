// The pipe protocol for any handler: one call a line in, one answer a line out.
#pragma once
#include <functional>

#include "src/host/handler.h"
#include "src/host/sandbox.h"

namespace tealight {

// Each line is the body of a call. A JSON answer is a line as it is; another one becomes {"status":...,"content_type":...,"body":...}, an
// error {"error":{"code":...,"message":...}}; pieces that are written before become {"delta":...} lines. All but JSON answers carry the
// "id" of the request. Serves like serve_stdio, in the sandbox; start_threads: see enter_sandbox. Returns the exit code.
int serve_lines(Handler& handler, int in, int out, SandboxMode sandbox, const std::function<void()>& start_threads);

}  // namespace tealight
