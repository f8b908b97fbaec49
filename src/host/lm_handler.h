// The model's own function: a request's JSON in, the answer's JSON out, for the hosts that answer one call at a time.
#pragma once
#include "src/host/handler.h"
#include "src/task/generate.h"

namespace tealight {

class LmHandler final : public Handler {
 public:
  explicit LmHandler(Lm& lm) : lm_(lm), generator_(lm) {}
  // POST to a path that ends in /chat/completions or /completions, or to / (either kind of request); GET of /health, /ready,
  // /v1/models and / tell about the function. Other paths and methods are answered with 404 and 405.
  // A request with "stream": true is answered by server-sent events through call.write where that is set. A generation that
  // would pass the deadline ends with finish_reason "length" and what it has. Errors: Code::request and what the model says.
  Answer handle(const Call& call) override;

 private:
  Answer generate(const Call& call);
  void check_model();
  Lm& lm_;
  Generator generator_;
  bool checked_ = false;               // what LoadOptions::defer_checks put off is done
};

}  // namespace tealight
