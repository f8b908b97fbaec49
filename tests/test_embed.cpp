// Embeddings of a decoder whose file says how its states are pooled.
#include <doctest/doctest.h>

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <string>

#include "src/base/base64.h"
#include "src/io/gguf.h"
#include "src/io/gguf_writer.h"
#include "src/task/embed.h"
#include "tests/fixtures.h"

using namespace tealight;

namespace {

// The tiny Granite with a pooling type (1 mean, 2 first, 3 last) in its metadata.
std::unique_ptr<Lm> pooled(uint32_t type, int batch = 512) {
  const Gguf file = Gguf::open(fixture("gguf/granite.F32.gguf"));
  GgufWriter w;
  for (const Gguf::Entry& e : file.metadata()) w.set(e.key, e.value);
  if (type) w.set("granite.pooling_type", type);
  for (const WeightView& v : file.weights().all()) w.tensor(v.name, v.dtype, {v.shape, size_t(v.rank)}, v.data);
  char path[] = "/tmp/tealight_test_XXXXXX";
  const int fd = mkstemp(path);
  REQUIRE(fd >= 0);
  close(fd);
  w.write(path);
  auto lm = Lm::load(path, {.threads = 1, .batch = batch});
  unlink(path);
  return lm;
}

EmbedRequest parsed(const char* text) { return parse_embed_request(JsonDoc::parse(text, "request").root()); }

std::string error_of(auto f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message;
  }
  return "no error";
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double s = 0;
  for (size_t i = 0; i < a.size(); i++) s += double(a[i]) * double(b[i]);
  return s;
}

}  // namespace

TEST_CASE("embed: length one, and pooled as the file says") {
  const std::vector<TokenId> ids = {5, 80, 200, 31, 77, 300, 12}, first = {5}, other = {9, 80, 200, 31, 77, 300, 12};
  for (uint32_t type : {1u, 2u, 3u}) {
    auto lm = pooled(type);
    const std::vector<float> v = lm->embed(ids);
    CHECK(v.size() == 32);
    CHECK(std::fabs(dot(v, v) - 1) < 1e-6);
    CHECK(pooled(type, 3)->embed(ids) == v);   // whatever the batches
    if (type == 2) CHECK(v == lm->embed(first));
    if (type == 2) CHECK(v != lm->embed(other));
  }
  // The mean of the states of one token is that token's; the last one's, too.
  CHECK(pooled(1)->embed(first) == pooled(3)->embed(first));
  CHECK(pooled(1)->embed(ids) != pooled(3)->embed(ids));
}

TEST_CASE("embed: OpenAI's forms of input, as numbers and as base64") {
  auto lm = pooled(3);
  const JsonDoc a = JsonDoc::parse(embed_answer(*lm, parsed(R"({"input":["ab","c"],"model":"m"})")), "answer");
  REQUIRE(a["data"].size() == 2);
  CHECK(a["data"][1]["index"].integer("index") == 1);
  CHECK(a["usage"]["prompt_tokens"].integer("n") > 1);
  const JsonDoc b = JsonDoc::parse(embed_answer(*lm, parsed(R"({"input":"c","encoding_format":"base64"})")), "answer");
  std::string bytes;
  REQUIRE(base64_decode(b["data"][size_t(0)]["embedding"].string("embedding"), bytes));
  REQUIRE(bytes.size() == 32 * 4);
  size_t i = 0;
  for (Json x : a["data"][1]["embedding"].elements()) {
    float f;
    std::memcpy(&f, bytes.data() + 4 * i++, 4);
    CHECK(float(x.number("x")) == f);
  }
  CHECK(parsed(R"({"input":[1,2,3]})").inputs.size() == 1);
  CHECK(parsed(R"({"input":[[1,2],[3]]})").inputs[1].ids == std::vector<TokenId>{3});
}

TEST_CASE("embed: what is wrong is named") {
  for (auto [text, want] : {std::pair{R"({})", "input: missing"}, {R"({"input":[]})", "input: is empty"}, {R"({"input":[[]]})", "input: is empty"},
                            {R"({"input":7})", "input: expected a string"}, {R"({"input":[-1]})", "input: -1 is not a token id"},
                            {R"({"input":"a","encoding_format":"x"})", "encoding_format: \"x\""}, {R"({"input":"a","dimensions":8})", "dimensions:"},
                            {R"([])", "expected a JSON object"}}) {
    INFO(std::string(text));
    CHECK(error_of([&, t = text] { parsed(t); }).find(want) != std::string::npos);
  }
  auto lm = pooled(1);
  CHECK(error_of([&] { lm->embed({}); }).find("no tokens") != std::string::npos);
  CHECK(error_of([&] { lm->embed(std::vector<TokenId>{99'999}); }).find("99999") != std::string::npos);
  CHECK(error_of([&] { lm->embed(std::vector<TokenId>(100'000, 5)); }).find("context") != std::string::npos);
  CHECK(error_of([] { pooled(0)->embed(std::vector<TokenId>{5}); }).find("makes no embeddings") != std::string::npos);
}
