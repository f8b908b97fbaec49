// An answer that is sent while it is made: a chunked POST with trailers for errors in the middle.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "src/host/lambda/client.h"

namespace tealight::lambda {

inline constexpr std::string_view kErrorTypeHeader = "Lambda-Runtime-Function-Error-Type";
inline constexpr std::string_view kErrorBodyHeader = "Lambda-Runtime-Function-Error-Body";

class ResponseStream {
 public:
  explicit ResponseStream(Connection& api) : api_(api) {}
  // For one invocation; nothing is sent before the first piece. `prelude` is a chunk of its own, or empty.
  void prepare(std::string_view id, std::string_view invocation_id, std::string_view content_type, std::string prelude,
               int64_t deadline_us);
  void set_prelude(std::string prelude) { prelude_ = std::move(prelude); }
  bool begun() const { return begun_; }

  // The first piece goes out at once, what follows within 20 ms or 1 KiB, with the piece that comes then. False: the API does
  // not read any more.
  bool write(std::string_view piece);
  bool gone();
  // The end of the body, and the API's response. False: there is none.
  bool end() { return finish({}); }
  // The same with the trailers that tell about an error; `body` is its JSON.
  bool fail(std::string_view type, std::string_view body);

 private:
  void begin();
  bool flush();
  bool finish(std::string_view trailers);
  Connection& api_;
  bool begun_ = false, broken_ = false;
  std::string path_, headers_, prelude_, pending_, out_;
  int64_t deadline_us_ = 0, sent_us_ = 0;
};

}  // namespace tealight::lambda
