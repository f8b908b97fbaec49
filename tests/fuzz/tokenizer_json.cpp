// Fuzzer target: a tokenizer.json, a zero byte, and a text that is encoded and decoded with it.
#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/error.h"
#include "src/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tealight;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view text = end == input.npos ? "a b 12 \u2581<s>" : input.substr(end + 1);
  try {
    auto t = Tokenizer::from_json(input.substr(0, end), "", "input");
    const TextPart parts[] = {{text.substr(0, text.size() / 2), true}, {text.substr(text.size() / 2), false}};
    const std::vector<TokenId> ids = t->encode_parts(parts, true);
    t->encode_pair(text, text, {});
    t->decode(ids, false);
    StreamDecoder stream(*t);
    for (TokenId id : ids) stream.push(id);
    stream.finish();
  } catch (const Error&) {
  }
  return 0;
}
