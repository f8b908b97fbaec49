// What every host carries: a call with a body comes in, an answer goes out. The model's own function (LmHandler) and a
// person's function (include/tealight/function.h) are handlers; lambda, http, cgi, azure and stdio are hosts.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tealight {

struct Call {
  std::string_view body;               // JSON for the model's own function
  std::string_view content_type;       // may be empty
  std::string_view method = "POST", path = "/", query;
  std::string_view request_id;         // the host's, for logs and answers; may be empty
  int64_t deadline_us = 0;             // CLOCK_MONOTONIC by which the answer must have been written; 0: none
  // Set where the host can pass text on before the answer ends, and the caller wants it. Each piece is a whole part of the
  // body; false: nobody reads any more, and the call should end. The status and type are fixed with the first piece.
  std::function<bool(std::string_view piece)> write;
  // True when the caller has gone; looked at between tokens. May be empty.
  std::function<bool()> gone;
  // Pipes and UNIX sockets, never TCP: the caller may share memory (shared_memory.h), also by descriptors that came with the call.
  bool local = false;
  std::span<const int> files;
};

struct Answer {
  int status = 200;                    // as HTTP counts; hosts without status take 400 and above as an error
  std::string content_type = "application/json";
  std::string body;                    // where pieces were written: what comes after them
};

class Handler {
 public:
  virtual ~Handler() = default;
  // One call at a time. Errors: tealight::Error; the host turns it into its kind of error answer.
  virtual Answer handle(const Call& call) = 0;
};

}  // namespace tealight
