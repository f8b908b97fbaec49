#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <thread>

#include "include/tealight.h"

namespace {

constexpr char kModel[] = "tests/data/models/llama_sharded";

struct Loaded {
  tealight_model* model = nullptr;
  explicit Loaded(int threads = 1) {
    tealight_options o = {};
    o.size = sizeof o;
    o.threads = threads;
    REQUIRE(tealight_load(kModel, &o, &model) == TEALIGHT_OK);
  }
  ~Loaded() { tealight_free(model); }
};

std::string message() { return tealight_message(); }

tealight_status generate(tealight_model* m, std::string_view request, tealight_sink sink = nullptr, void* context = nullptr,
                         const char** answer = nullptr, size_t* bytes = nullptr) {
  return tealight_generate(m, request.data(), request.size(), sink, context, answer, bytes);
}

}  // namespace

TEST_CASE("C interface: version, and wrong arguments") {
  CHECK(tealight_abi() == TEALIGHT_ABI);
  CHECK(std::strlen(tealight_version()) > 0);
  tealight_free(nullptr);
  tealight_model* m = reinterpret_cast<tealight_model*>(1);
  CHECK(tealight_load(nullptr, nullptr, &m) == TEALIGHT_USAGE);
  CHECK(m == nullptr);
  CHECK(message() == "path: is NULL");
  CHECK(tealight_load(kModel, nullptr, nullptr) == TEALIGHT_USAGE);
  tealight_options o = {};
  CHECK(tealight_load(kModel, &o, &m) == TEALIGHT_USAGE);
  CHECK(message().find("size is 0") != std::string::npos);
  o.size = sizeof o;
  o.threads = -1;
  CHECK(tealight_load(kModel, &o, &m) == TEALIGHT_USAGE);
  CHECK(tealight_load("no/such/file", nullptr, &m) == TEALIGHT_FILE);
  CHECK(message().find("no/such/file") != std::string::npos);
  CHECK(tealight_load("tests/test_capi.cpp", nullptr, &m) != TEALIGHT_OK);
  CHECK(generate(nullptr, "{}") == TEALIGHT_USAGE);
  const float* values;
  size_t n;
  CHECK(tealight_embed(nullptr, "a", 1, &values, &n) == TEALIGHT_USAGE);
}

TEST_CASE("C interface: answers in pieces, whole, and ended early") {
  Loaded l;
  std::string text;
  const auto collect = [](void* context, const char* piece, size_t bytes) {
    CHECK(std::strlen(piece) <= bytes);
    static_cast<std::string*>(context)->append(piece, bytes);
    return 0;
  };
  const char* answer = nullptr;
  size_t bytes = 0;
  const char request[] = "{\"prompt\":\"The quick\",\"temperature\":0,\"max_tokens\":10}";
  REQUIRE(generate(l.model, request, collect, &text, &answer, &bytes) == TEALIGHT_OK);
  CHECK(std::strlen(answer) == bytes);
  CHECK(!text.empty());
  const std::string first = answer;
  CHECK(first.find("\"completion_tokens\":10") != std::string::npos);
  REQUIRE(generate(l.model, request) == TEALIGHT_OK);   // nobody wants the answer
  const auto end = [](void*, const char*, size_t) { return 1; };
  REQUIRE(generate(l.model, request, end, nullptr, &answer) == TEALIGHT_OK);
  CHECK(std::string(answer).find("\"completion_tokens\":10") == std::string::npos);
  REQUIRE(generate(l.model, request, nullptr, nullptr, &answer) == TEALIGHT_OK);
  CHECK(std::string(answer).find("\"completion_tokens\":10") != std::string::npos);
}

TEST_CASE("C interface: a request that fails leaves the model usable") {
  Loaded l;
  CHECK(generate(l.model, "{") == TEALIGHT_REQUEST);
  CHECK(generate(l.model, "{\"prompt\":5}") == TEALIGHT_REQUEST);
  CHECK(message().find("prompt") != std::string::npos);
  CHECK(generate(l.model, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}") == TEALIGHT_TEMPLATE);
  const float* values;
  size_t n;
  CHECK(tealight_embed(l.model, "a", 1, &values, &n) == TEALIGHT_UNSUPPORTED);
  CHECK(!message().empty());
  CHECK(generate(l.model, "{\"prompt\":\"a\",\"max_tokens\":1}") == TEALIGHT_OK);
}

TEST_CASE("C interface: two models on two threads, messages apart") {
  Loaded a, b;
  CHECK(generate(a.model, "[") == TEALIGHT_REQUEST);
  const std::string mine = message();
  std::thread other([&] {
    CHECK(std::string(tealight_message()).empty());
    for (int i = 0; i < 3; i++) CHECK(generate(b.model, "{\"prompt\":\"x\",\"max_tokens\":5}") == TEALIGHT_OK);
    CHECK(generate(b.model, "{}") == TEALIGHT_REQUEST);
  });
  for (int i = 0; i < 3; i++) CHECK(generate(a.model, "{\"prompt\":\"y\",\"max_tokens\":5}") == TEALIGHT_OK);
  other.join();
  CHECK(message() == mine);
}
