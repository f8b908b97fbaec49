// One call a process: CGI (RFC 3875), and the plain pipe of OpenFaaS' classic watchdog.
#pragma once
#include "src/host/handler.h"

namespace tealight {

// The request is in the environment and on `in`, the response (Status, Content-Type, an empty line, the body) goes to `out`.
// Returns the exit code: 1 when nobody reads. Errors of the call become responses.
int serve_cgi(Handler& handler, int in, int out);

// The body is what comes up to the end of `in`, the path "/"; the answer's body goes to `out`. Exit code 1 for an answer of status 400 and more.
int serve_pipe(Handler& handler, int in, int out);

}  // namespace tealight
