// Fuzz target: one message, whole, byte by byte and cut in two; all must agree. The first byte chooses kind and cut.
#include <cstdint>

#include "src/base/error.h"
#include "src/host/http.h"

using namespace tealight;

namespace {

std::string parse(std::string_view bytes, HttpParser::Kind kind, size_t first, size_t step) {
  HttpParser p(kind, {.head_bytes = 2000, .headers = 20, .body_bytes = 3000});
  size_t used = p.feed(bytes.substr(0, first));
  for (size_t i = first; i < bytes.size() && used == i; i += step) used += p.feed(bytes.substr(i, step));
  TEALIGHT_CHECK(used <= bytes.size());
  TEALIGHT_CHECK(p.body().size() <= 3000);
  if (p.state() == HttpParser::State::failed) return cat("failed ", p.error_status(), p.error());
  TEALIGHT_CHECK(p.state() == HttpParser::State::done || used == bytes.size());
  const bool open = p.state() != HttpParser::State::done;
  p.end_of_input();
  return cat(used, open, int(p.state()), p.status(), p.method(), " ", p.path(), "?", p.query(), p.header("host"),
             p.trailer("x"), p.keep_alive(), p.body());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto kind = data[0] & 1 ? HttpParser::Kind::response : HttpParser::Kind::request;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = parse(bytes, kind, bytes.size(), 1);
  TEALIGHT_CHECK(parse(bytes, kind, 0, 1) == whole);
  TEALIGHT_CHECK(parse(bytes, kind, std::min<size_t>(data[0] * 3, bytes.size()), 1 << 20) == whole);
  return 0;
}
