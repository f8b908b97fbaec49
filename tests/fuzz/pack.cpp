// The end of a packed file of any bytes, with its checksums made right: table, directory, metadata, and a tokenizer that uses whatever
// index the file has. The first 8 bytes say how many zeros stand before the rest.
#include <algorithm>

#include "src/base/error.h"
#include "src/text/tokenizer.h"
#include "tests/packed.h"

using namespace tealight;

namespace {

volatile uint64_t g_sink = 0;

void touch(const std::byte* data, uint64_t bytes) {
  if (bytes) g_sink = g_sink + uint64_t(data[0]) + uint64_t(data[bytes - 1]);
}

void use_tokenizer(const PackFile& file) {
  const auto t = Tokenizer::from_gguf(file.gguf(), &file.tables());
  const std::vector<TokenId> ids = t->encode("The quick <|im_end|> fox\xe2\x96\x81 jumps <0x41> \xf0\x9f\x99\x82 1234", {true, true});
  g_sink = g_sink + t->decode(ids, false).size() + t->end_tokens.size();
  for (TokenId id : {0, 1, 255, int(t->size()) - 1, int(t->size()), -1}) {
    std::string bytes;
    t->append_bytes(bytes, id, false, false);
    g_sink = g_sink + bytes.size() + t->piece(id).size() + t->find(t->piece(id)).has_value();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 8) return 0;
  uint64_t zeros;
  std::memcpy(&zeros, data, 8);
  std::string bytes(size_t(std::min<uint64_t>(zeros, 1 << 20)), '\0');
  bytes.append(reinterpret_cast<const char*>(data) + 8, size - 8);
  reseal(bytes);
  try {
    const auto file = PackFile::parse(Mapping::from_bytes(std::move(bytes)));
    for (const WeightView& w : (file->gguf() ? file->gguf()->weights() : file->hf()->weights).all()) touch(w.data, w.bytes);
    for (const PackFile::Prefix& p : file->prefixes()) touch(p.kv.data(), p.kv.size());
    if (file->gguf()) {
      for (const auto& [key, value] : file->gguf()->metadata()) {
        touch(value.data, value.bytes);
        try {
          if (auto strings = file->gguf()->strings(key)) g_sink = g_sink + strings->size();
        } catch (const Error&) {
        }
      }
      use_tokenizer(*file);
    }
    file->verify();
  } catch (const Error&) {
  }
  return 0;
}
