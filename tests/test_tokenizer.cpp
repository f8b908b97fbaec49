// Tokenizers against what the reference libraries gave (tests/data/tokenizers) and real vocabularies where they are at hand.
#include <doctest/doctest.h>

#include <climits>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/mapping.h"
#include "src/io/gguf.h"
#include "src/text/pipeline.h"
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

TEST_CASE("SentencePiece files: the texts of the sentencepiece library, special tokens not parsed") {
  for (const char* name : {"spm_gemma", "spm_llama2", "unigram_t5"}) {
    CAPTURE(std::string(name));
    const std::string folder = fixture(cat("tokenizers/", name));
    auto t = load_json(folder);
    const JsonDoc doc = JsonDoc::parse(Mapping::open(folder + "/sp_vectors.json")->text(), "sp_vectors.json");
    for (Json v : doc["vectors"].elements()) {
      const std::string_view text = v["text"].string("text");
      CAPTURE(text);
      // The library finds Gemma's turn marks in any text, and Hugging Face's T5 takes \\v for white space: theirs, not ours to follow.
      if (text.find("<end_of_turn>") != text.npos || text.find('\v') != text.npos) continue;
      CHECK(shown(t->encode(text, {false, false})) == shown(ids_of(v["ids"])));
      const std::string_view decoded = v["decoded"].string("decoded");
      if (decoded.find("\u2047") == decoded.npos) CHECK(t->decode(ids_of(v["ids"]), false) == decoded);   // the library's sign for unknown
    }
  }
}

namespace {

// Every text must become the same ids whether it is looked up in the whole index or in one of what occurs in it.
void check_short_texts(const Tokenizer& t, std::span<const std::string> texts) {
  auto& short_texts = dynamic_cast<const PipelineTokenizer&>(t).vocab->short_texts;
  for (const std::string& text : texts) {
    CAPTURE(text);
    short_texts = 0;
    const std::vector<TokenId> whole = t.encode(text, {true, true});
    short_texts = INT_MAX;
    const std::vector<TokenId> own = t.encode(text, {true, true});
    CHECK(shown(own) == shown(whole));
  }
  short_texts = 0;
}

std::vector<std::string> many_texts(std::span<const std::string> some) {
  std::vector<std::string> texts(some.begin(), some.end());
  texts.insert(texts.end(), {"", "a", " ", "The capital of France is the city of", "<unk><s></s><|endoftext|>x<|im_start|>user\nhi<|im_end|>", "\xf0\x9f\x98\x80\xc3\xa9 \xff\xfe",
                             std::string(1000, 'a'), std::string(1024, ' '), std::string(2000, 'b')});
  std::string mixed;
  for (const std::string& s : some) {          // and pieces of all lengths of all texts joined
    mixed += s;
    if (mixed.size() > 900) {
      texts.push_back(mixed);
      mixed.clear();
    }
  }
  return texts;
}

}  // namespace

TEST_CASE("short texts: the same ids without an index of the whole vocabulary") {
  for (const char* name : kFolders) {
    CAPTURE(std::string(name));
    const std::string folder = fixture(cat("tokenizers/", name));
    REQUIRE(!folder.empty());
    const JsonDoc doc = JsonDoc::parse(Mapping::open(folder + "/vectors.json")->text(), "vectors.json");
    std::vector<std::string> texts;
    for (Json v : doc["vectors"].elements()) texts.emplace_back(v["text"].string("text"));
    check_short_texts(*load_json(folder), many_texts(texts));
  }
}

TEST_CASE("short texts: the same ids of real vocabularies" * doctest::skip(no_vocabularies)) {
  for (const char* name : kVocabularies) {
    CAPTURE(std::string(name));
    const JsonDoc extra = JsonDoc::parse(Mapping::open(fixture(cat("vocab/", name, ".extra.json")))->text(), "extra");
    std::vector<std::string> texts;
    for (Json v : extra["vectors"].elements()) texts.emplace_back(v["text"].string("text"));
    check_short_texts(*load_gguf(fixture(cat("vocab/ggml-vocab-", name, ".gguf"))), many_texts(texts));
  }
}

TEST_CASE("short texts: every string that occurs, and no other") {
  const std::string text = "abcabcabcdefghijklmnopqr\xe2\x96\x81the\xe2\x96\x81" "thesis";
  const ShortText t(text);
  const auto has = [&](std::string_view s) {
    return t.has(ShortText::head(s.data(), s.size(), s.data() + s.size()), s.size(), [&](std::string_view part) { return part == s; });
  };
  for (size_t i = 0; i < text.size(); i++)
    for (size_t n = 1; n <= text.size() - i; n++) {
      std::string s = text.substr(i, n);
      CHECK(has(s));
      s.back() = 'X';
      CHECK(!has(s));
      s.insert(0, "zz");
      CHECK(!has(s));
    }
  CHECK(!t.repetitive());
  CHECK(ShortText(std::string(100, 'a')).repetitive());
}

namespace {

// A byte-level tokenizer.json: letters, the merges "a b" and "ab c", and what the caller adds.
std::string byte_level_json(std::string_view added, std::string_view extra = "") {
  std::string vocab, s;
  TokenId id = 100;
  for (uint32_t b = 0; b < 256; b++) {
    const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    static uint32_t next;
    if (b == 0) next = 256;
    std::string letter;
    const uint32_t c = itself ? b : next++;
    if (c < 0x80) letter += char(c);
    else (letter += char(0xc0 | c >> 6)) += char(0x80 | (c & 0x3f));
    json_quote(vocab, letter);
    vocab += cat(":", id++, ",");
  }
  return cat(R"({"added_tokens":[)", added, R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)",
             R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)", vocab, R"("ab":400,"abc":401},"merges":["a b","ab c"])", extra, "}}");
}

std::string added(TokenId id, std::string_view content, bool special, std::string_view more = "") {
  std::string s = cat("{\"id\":", id, ",\"content\":");
  json_quote(s, content);
  return s += cat(",\"special\":", special, ",\"normalized\":false", more, "}");
}

}  // namespace

TEST_CASE("added tokens made of byte letters decode to themselves") {
  auto t = Tokenizer::from_json(byte_level_json(added(0, "il\u00d6veyou", false) + "," + added(1, "\u010dau", false)), "", "t");
  CHECK(t->encode("il\u00d6veyou", {}) == std::vector<TokenId>{0});
  CHECK(t->encode("\u010dau", {}) == std::vector<TokenId>{1});
  CHECK(t->decode(std::vector<TokenId>{0, 1}, false) == "il\u00d6veyou\u010dau");
  CHECK(streamed(*t, {0, 1}, true) == "il\u00d6veyou\u010dau");
}

TEST_CASE("special tokens: only where they may be written; words go across parts") {
  auto t = Tokenizer::from_json(byte_level_json(added(0, "<s>", true) + "," + added(1, "<e>", true, ",\"lstrip\":true,\"rstrip\":true") + "," +
                                                added(2, "word", false, ",\"single_word\":true")), "", "t");
  auto encode = [&](std::initializer_list<TextPart> parts) { return shown(t->encode_parts(std::vector<TextPart>(parts), false)); };
  CHECK(encode({{"<s>abc", true}}) == "0 401 ");
  CHECK(encode({{"<s>", false}}) == shown(t->encode("<s>", {false, false})));
  CHECK(encode({{"<s>", false}}) != "0 ");
  CHECK(encode({{"<s>ab", true}, {"c", false}}) == "0 401 ");                       // one word in two parts
  CHECK(encode({{"<", true}, {"s>", false}}) == encode({{"<s>", false}}));           // no special token across a border
  CHECK(encode({{"<", true}, {"s>", true}}) == "0 ");                                // both parts may
  CHECK(encode({{"a ", true}, {"<e>", true}, {"  b", true}}) == shown({t->encode("a", {})[0], 1, t->encode("b", {})[0]}));
  CHECK(encode({{"word", false}}) == "2 ");
  CHECK(encode({{"words", false}}) != "2 ");
  CHECK(encode({{"", true}, {"", false}}) == "");
  CHECK(t->encode_parts({}, true).empty());
}

TEST_CASE("BOS: exactly one where the model wants one") {
  const std::string bos = added(0, "<s>", true), frame = R"(,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],)"
      R"("pair":[],"special_tokens":{"<s>":{"ids":[0]}}},"x":{"y":0)";
  std::string with = byte_level_json(bos);
  with.insert(with.size() - 1, frame + "}");
  auto wants = Tokenizer::from_json(with, "", "t");
  auto plain = Tokenizer::from_json(byte_level_json(bos), "", "t");
  CHECK(wants->adds_bos);
  CHECK(!plain->adds_bos);
  auto prompt = [](const auto& t, std::initializer_list<TextPart> parts) { return shown(encode_prompt(*t, std::vector<TextPart>(parts))); };
  CHECK(prompt(wants, {{"abc", true}}) == "0 401 ");
  CHECK(prompt(wants, {{"<s>abc", true}}) == "0 401 ");
  CHECK(prompt(wants, {{"<s>", true}, {"abc", false}}) == "0 401 ");
  CHECK(prompt(wants, {}) == "0 ");
  CHECK(prompt(plain, {{"<s>abc", true}}) == "0 401 ");    // what the template writes stays
  CHECK(prompt(plain, {{"abc", true}}) == "401 ");
}

TEST_CASE("streams never emit half a character") {
  auto t = load_json(fixture("tokenizers/bpe_gpt2"));
  const std::vector<TokenId> ids = t->encode("\U0001f999", {false, false});
  REQUIRE(ids.size() > 1);
  StreamDecoder d(*t);
  for (size_t i = 0; i + 1 < ids.size(); i++) CHECK(d.push(ids[i]) == "");
  CHECK(d.push(ids.back()) == "\U0001f999");
  CHECK(d.finish() == "");
  for (const char* name : kFolders) {
    if (std::string_view(name) == "bpe_clip") continue;
    CAPTURE(std::string(name));
    auto u = load_json(fixture(cat("tokenizers/", name)));
    std::vector<TokenId> cut = u->encode("x \U0001f999\U0001f999", {false, false});
    for (size_t n = 0; n <= cut.size(); n++) {
      const std::vector<TokenId> some(cut.begin(), cut.begin() + ptrdiff_t(n));
      CHECK(streamed(*u, some, true) == u->decode(some, true));
    }
  }
}

TEST_CASE("Llama 2's vocabulary: ids and streaming" * doctest::skip(no_vocabularies)) {
  auto t = load_gguf(fixture("vocab/ggml-vocab-llama-spm.gguf"));
  const std::pair<const char*, std::vector<TokenId>> kTexts[] = {{"Hello world", {15043, 3186}},
                                                                {" Hello world", {29871, 15043, 3186}},
                                                                {"  Hello", {259, 15043}},
                                                                {"This is \U0001f999.cpp", {910, 338, 29871, 243, 162, 169, 156, 29889, 8223}},
                                                                {"", {}},
                                                                {"\n", {29871, 13}},
                                                                {"\u3000x", {29871, 30358, 29916}}};
  for (const auto& [text, ids] : kTexts) {
    CAPTURE(std::string(text));
    CHECK(shown(t->encode(text, {false, false})) == shown(ids));
    CHECK(t->decode(ids, true) == text);
  }
  CHECK(t->adds_bos);
  CHECK(shown(t->encode("Hello world", {})) == "1 15043 3186 ");
  StreamDecoder d(*t);
  CHECK(d.push(910) == "This");
  for (TokenId id : {243, 162, 169}) CHECK(d.push(id) == "");
  CHECK(d.push(156) == "\U0001f999");
  for (TokenId id : {243, 162, 169}) CHECK(d.push(id) == "");
  CHECK(d.finish() == "\ufffd\ufffd\ufffd");
  CHECK(t->decode(std::vector<TokenId>{243, 162, 169}, true) == "\ufffd\ufffd\ufffd");
  CHECK(t->encode("</s>", {false, false}).size() > 1);      // a user's text is never a special token
  CHECK(shown(t->encode("</s>", {false, true})) == "2 ");
}

TEST_CASE("end tokens: all that a file names" * doctest::skip(no_vocabularies)) {
  auto phi = load_gguf(fixture("vocab/ggml-vocab-phi-3.gguf"));
  auto ends = [](const Tokenizer& t, std::string_view piece) {
    for (TokenId id : t.end_tokens)
      if (t.piece(id) == piece) return true;
    return false;
  };
  CHECK(ends(*phi, "<|end|>"));
  CHECK(ends(*phi, "<|endoftext|>"));
  CHECK(phi->encode("<|user|> \nx", {false, true}).size() == 2);   // takes the white space after it along
  auto qwen = load_gguf(fixture("vocab/ggml-vocab-qwen2.gguf"));
  CHECK(ends(*qwen, "<|im_end|>"));
  auto llama = load_gguf(fixture("vocab/ggml-vocab-llama-bpe.gguf"));
  CHECK(ends(*llama, "<|eot_id|>"));
  CHECK(ends(*llama, "<|end_of_text|>"));
}

TEST_CASE("hostile files are refused with their cause") {
  for (const char* name : {"tokenizer_not_json", "tokenizer_merge_unknown", "tokenizer_unknown_model", "tokenizer_negative_id", "tokenizer_bad_regex", "tokenizer_huge_id"}) {
    CAPTURE(std::string(name));
    const std::string folder = fixture(cat("formats/hf_hostile/", name));
    REQUIRE(!folder.empty());
    try {
      load_json(folder);
      FAIL("loaded");
    } catch (const Error& e) {
      MESSAGE(e.message);
      CHECK((e.code == Code::tokenizer || e.code == Code::format));
    }
  }
  CHECK_NOTHROW(load_json(fixture("formats/hf_hostile/base_valid")));
  for (const char* name : {"no_tokens", "no_tokenizer_model", "unknown_tokenizer_model", "tokens_are_numbers", "scores_too_short", "token_types_too_short"}) {
    CAPTURE(std::string(name));
    const std::string path = fixture(cat("formats/gguf_hostile/", name, ".gguf"));
    REQUIRE(!path.empty());
    try {
      load_gguf(path);
      FAIL("loaded");
    } catch (const Error& e) {
      MESSAGE(e.message);
      CHECK((e.code == Code::tokenizer || e.code == Code::format));
    }
  }
  for (const char* name : {"bos_out_of_range", "token_not_utf8", "base_valid"}) {
    CAPTURE(std::string(name));
    auto t = load_gguf(fixture(cat("formats/gguf_hostile/", name, ".gguf")));
    for (TokenId id = -1; id <= TokenId(t->size()); id++) t->decode(std::vector<TokenId>{id}, false);
    t->encode("a b\xff", {});
  }
}

TEST_CASE("tokenizer.json: wrong values are refused") {
  auto refused = [](std::string json) { CHECK_THROWS_AS(Tokenizer::from_json(json, "", "t"), Error); };
  for (const char* j : {"[]", "{}", R"({"model":{"type":"BPE"}})", R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}})",
                        R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[1]}})", R"({"model":{"type":"BPE","vocab":{"a":"0"},"merges":[]}})",
                        R"({"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}})", R"({"model":{"type":"Unigram","vocab":[["a"]]}})",
                        R"({"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":1}})", R"({"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":-1}})",
                        R"({"model":{"type":"WordLevel","vocab":{"a":9223372036854775807}}})", R"({"model":{"type":"WordLevel","vocab":{}}})",
                        R"({"model":{"type":"WordLevel","vocab":{"a":0}},"added_tokens":[{"content":"b"}]})",
                        R"({"model":{"type":"WordLevel","vocab":{"a":0}},"added_tokens":[{"id":0,"content":"b"}]})",
                        R"({"model":{"type":"WordLevel","vocab":{"a":0}},"decoder":{"type":"Nope"}})",
                        R"({"model":{"type":"WordLevel","vocab":{"a":0}},"normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="}})",
                        R"({"model":{"type":"WordLevel","vocab":{"a":0}},"post_processor":{"type":"BertProcessing","cls":["a",7],"sep":["a",0]}})"})
    refused(j);
  std::string deep;
  for (int i = 0; i < 40; i++) deep += R"({"type":"Sequence","normalizers":[)";
  deep += R"({"type":"NFC"})";
  for (int i = 0; i < 40; i++) deep += "]}";
  refused(R"({"model":{"type":"WordLevel","vocab":{"a":0}},"normalizer":)" + deep + "}");
}

TEST_CASE("long texts: near-linear time, no recursion") {
  for (const char* name : kFolders) {
    CAPTURE(std::string(name));
    auto t = load_json(fixture(cat("tokenizers/", name)));
    for (const std::string& text : {std::string(200'000, 'a'), std::string(200'000, ' '), std::string(200'000, '!')}) {
      const std::vector<TokenId> ids = t->encode(text, {false, false});
      CHECK(ids.size() <= text.size() + 1);
    }
  }
}

TEST_CASE("tokenizer.json: steps that multiply a text are stopped") {
  const std::string head = R"({"model":{"type":"WordLevel","vocab":{"a":0}},)", doubles = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  auto forty = [](const std::string& step) {
    std::string list = step;
    for (int i = 1; i < 40; i++) list += "," + step;
    return list;
  };
  CHECK_THROWS_AS(Tokenizer::from_json(head + R"("normalizer":{"type":"Sequence","normalizers":[)" + forty(doubles) + "]}}", "", "t")->encode("a", {}), Error);
  CHECK_THROWS_AS(Tokenizer::from_json(head + R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)" +
                                       forty(R"({"type":"ByteLevel","use_regex":false})") + "]}}", "", "t")->encode("\u00e9", {}), Error);
  const TokenId id = 0;
  CHECK_THROWS_AS(Tokenizer::from_json(head + R"("decoder":{"type":"Sequence","decoders":[)" + forty(doubles) + "]}}", "", "t")->decode({&id, 1}, false), Error);
}

TEST_CASE("tokenizer.json: long pieces and stretches of white space take linear time") {
  const std::string a(100'000, 'a'), spaces(100'000, ' ');
  for (const std::string& json :
       {R"({"model":{"type":"Unigram","unk_id":0,"vocab":[["u",0],["a",-1],[")" + a + R"(b",-2]]}})",
        R"({"model":{"type":"WordPiece","max_input_chars_per_word":1000000,"vocab":{"a":0,"##a":1,"##)" + a + R"(b":2}}})",
        std::string(R"({"model":{"type":"WordLevel","vocab":{"a":0}},"added_tokens":[{"id":1,"content":" ","lstrip":true,"rstrip":true}]})")})
    for (const std::string& text : {a + a, spaces}) Tokenizer::from_json(json, "", "t")->encode(text, {});
}
