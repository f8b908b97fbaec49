// Tokenizers against what the reference libraries gave (tests/data/tokenizers) and real vocabularies where they are at hand.
#include <doctest/doctest.h>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/mapping.h"
#include "src/text/tokenizer.h"
#include "tests/fixtures.h"

using namespace tealight;

namespace {

std::shared_ptr<const Tokenizer> load_json(const std::string& folder) {
  const std::string config = folder + "/tokenizer_config.json";
  return Tokenizer::from_json(Mapping::open(folder + "/tokenizer.json")->text(), file_exists(config) ? read_text_file(config, 1 << 24) : "", folder);
}

std::vector<TokenId> ids_of(Json array) {
  std::vector<TokenId> ids;
  for (Json e : array.elements()) ids.push_back(TokenId(e.integer("id")));
  return ids;
}

std::string shown(const std::vector<TokenId>& ids) {
  std::string s;
  for (TokenId id : ids) s += cat(id, " ");
  return s;
}

std::string streamed(const Tokenizer& t, const std::vector<TokenId>& ids, bool skip_special) {
  StreamDecoder d(t, skip_special);
  std::string s;
  for (TokenId id : ids) s += d.push(id);
  return s += d.finish();
}

constexpr const char* kFolders[] = {"bpe_clip",     "bpe_deepseek",  "bpe_falcon", "bpe_gpt2",   "bpe_llama3",           "bpe_neox",   "bpe_qwen2",      "bpe_roberta",
                                    "bpe_starcoder", "spm_gemma", "spm_llama2", "spm_llama2_metaspace", "unigram_t5", "wordpiece_cased", "wordpiece_uncased"};

}  // namespace

TEST_CASE("tokenizer.json: ids and texts of the reference library") {
  for (const char* name : kFolders) {
    CAPTURE(name);
    const std::string folder = fixture(cat("tokenizers/", name));
    REQUIRE(!folder.empty());
    auto t = load_json(folder);
    const auto file = Mapping::open(folder + "/vectors.json");
    const JsonDoc doc = JsonDoc::parse(file->text(), "vectors.json");
    for (Json v : doc["vectors"].elements()) {
      const std::string_view text = v["text"].string("text");
      CAPTURE(text);
      const std::vector<TokenId> ids = ids_of(v["ids"]), plain = ids_of(v["ids_no_special"]);
      CHECK_MESSAGE(shown(t->encode(text, {true, true})) == shown(ids), "with special tokens");
      CHECK_MESSAGE(shown(t->encode(text, {false, true})) == shown(plain), "without special tokens");
      size_t i = 0;
      for (Json piece : v["tokens"].elements()) CHECK(t->piece(ids[i++]) == piece.string("piece"));
      CHECK(t->decode(plain, false) == v["decoded"].string("decoded"));
      CHECK(t->decode(ids, true) == v["decoded_skip_special"].string("decoded"));
      if (std::string_view(name) != "bpe_clip") CHECK(streamed(*t, plain, false) == v["decoded"].string("decoded"));
    }
    for (Json v : doc["pairs"].elements()) {
      const Json a = v["a"] ? v["a"] : v["text"], b = v["b"] ? v["b"] : v["pair"];
      CHECK(shown(t->encode_pair(a.string("a"), b.string("b"), {true, true})) == shown(ids_of(v["ids"])));
    }
  }
}
