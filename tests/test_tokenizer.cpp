// Tokenizers against what the reference libraries gave (tests/data/tokenizers) and real vocabularies where they are at hand.
#include <doctest/doctest.h>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/mapping.h"
#include "src/io/gguf.h"
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

std::shared_ptr<const Tokenizer> load_gguf(const std::string& path) { return Tokenizer::from_gguf(std::make_shared<Gguf>(Gguf::open(path))); }

const bool no_vocabularies = !have_fixture("vocab/index.json");

constexpr const char* kVocabularies[] = {"bert-bge", "deepseek-coder", "falcon", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2", "starcoder"};

}  // namespace

TEST_CASE("GGUF: ids of real vocabularies" * doctest::skip(no_vocabularies)) {
  for (const char* name : kVocabularies) {
    CAPTURE(std::string(name));
    const std::string path = fixture(cat("vocab/ggml-vocab-", name, ".gguf"));
    auto t = load_gguf(path);
    // Texts are parted by a line of their own, ids by line ends.
    constexpr std::string_view kLine = "\n__ggml_vocab_test__\n";
    const auto in = Mapping::open(path + ".inp"), out = Mapping::open(path + ".out");
    std::string_view texts = in->text(), lines = out->text();
    size_t n = 0;
    while (!texts.empty()) {
      const size_t end = texts.find(kLine), line = lines.find('\n');
      const std::string_view text = texts.substr(0, end);
      CAPTURE(text);
      std::string want(lines.substr(0, line));
      std::string got;
      for (TokenId id : t->encode(text, {false, false})) got += cat(" ", id);
      CHECK(got == want);
      texts.remove_prefix(end == texts.npos ? texts.size() : end + kLine.size());
      lines.remove_prefix(line + 1);
      n++;
    }
    CHECK(n == 46);
    const JsonDoc extra = JsonDoc::parse(Mapping::open(fixture(cat("vocab/", name, ".extra.json")))->text(), "extra");
    for (Json v : extra["vectors"].elements()) {
      const std::string_view text = v["text"].string("text");
      CAPTURE(text);
      CHECK(shown(t->encode(text, {false, false})) == shown(ids_of(v["ids"])));
    }
  }
}

TEST_CASE("tokenizer.json: ids and texts of the reference library") {
  for (const char* name : kFolders) {
    CAPTURE(std::string(name));
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
      for (Json piece : v["tokens"].elements()) {   // of an unknown token the file has the text, not the piece
        if (plain[i] != t->unk) CHECK(t->piece(plain[i]) == piece.string("piece"));
        i++;
      }
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
