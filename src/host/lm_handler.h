// The model's own function: a request's JSON in, the answer's JSON out, for the hosts that answer one call at a time.
#pragma once
#include "src/host/handler.h"
#include "src/task/generate.h"

namespace tealight {

class LmHandler final : public Handler {
 public:
  // All three outlive the handler; the cache may be null.
  explicit LmHandler(Lm& lm, PrefixCache* cache = nullptr) : lm_(lm), generator_(lm, cache) {}
  // A request with "stream": true is answered by server-sent events through call.write where that is set. A generation that
  // would pass the deadline ends with finish_reason "length" and what it has. Errors: Code::request and what the model says.
  Answer handle(const Call& call) override;

 private:
  Lm& lm_;
  Generator generator_;
};

}  // namespace tealight
