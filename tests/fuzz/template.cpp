// Fuzz target: a template, a zero byte, and the JSON of its variables. Also checks that the parts are the text.
#include <cstdint>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/text/chat_template.h"

using namespace tealight;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(input.find('\0'), input.size());
  const std::string_view source = input.substr(0, zero), json = input.substr(std::min(zero + 1, input.size()));
  ChatTemplate::Limits limits;
  limits.max_steps = 100'000;
  limits.max_output_bytes = 1 << 20;
  try {
    const ChatTemplate t = ChatTemplate::parse(source);
    const JsonDoc variables = json.empty() ? JsonDoc() : JsonDoc::parse(json, "variables");
    const std::string text = t.render(variables.root(), "2031-03-14 09:26:53", limits);
    std::string joined;
    for (const RenderedPart& p : t.render_parts(variables.root(), "2031-03-14 09:26:53", limits)) joined += p.text;
    TEALIGHT_CHECK(joined == text);
  } catch (const Error&) {
  }
  return 0;
}
