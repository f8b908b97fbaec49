// Fuzz target: request lines into the stdio host, with a model that has no network.
#include <cstdint>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/host/stdio.h"
#include "tests/fake_lm.h"

using namespace tealight;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FakeLm lm;
  lm.model.say("Hello \xf0\x9f\xa6\x99 world");
  lm.model.capacity = 200;
  size_t lines = 0, errors = 0, answers = 0;
  StdioHost host(lm, [&](std::string_view line) {
    // Every line is one JSON object with its end, and is an answer, a delta or an error.
    TEALIGHT_CHECK(line.ends_with('\n') && line.find('\n') == line.size() - 1);
    const JsonDoc doc = JsonDoc::parse(line, "answer");
    TEALIGHT_CHECK(bool(doc["error"]) != bool(doc["choices"]));
    lines++;
    errors += bool(doc["error"]);
    answers += bool(doc["usage"]);
    return true;
  });
  size_t requests = 0;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    requests += line.find_first_not_of(" \t\r") != line.npos;
    TEALIGHT_CHECK(host.answer(line));
    TEALIGHT_CHECK(errors + answers == requests);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return 0;
}
