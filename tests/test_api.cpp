// OpenAI's API on a model without a network, whose answers are scripted.
#include <doctest/doctest.h>

#include <thread>

#include "src/base/error.h"
#include "src/host/api_service.h"
#include "src/host/listener.h"
#include "tests/fake_lm.h"
#include "tests/http_client.h"

using namespace tealight;

namespace {

struct Running {
  // Ends when the test says so.
  struct Service : ApiService {
    using ApiService::ApiService;
    void woken() override {
      ApiService::woken();
      if (end) server->stop(0);
    }
    HttpServer* server = nullptr;
    std::atomic<bool> end{false};
  };
  Service service;
  HttpServer server;
  int port = 0, code = -1;
  std::thread thread;
  static HttpServerOptions quiet() {
    HttpServerOptions o;
    o.access_log = HttpServerOptions::AccessLog::off;
    return o;
  }
  explicit Running(ApiService::Load load, ApiOptions options = {}) : service(options, std::move(load)), server(service, quiet()) {
    service.server = &server;
    server.add(listen_tcp("127.0.0.1", port));
    service.start(server);
    thread = std::thread([this] { code = server.run(); });
  }
  ~Running() {
    service.end = true;
    server.wake();
    thread.join();
  }
  // Status and body.
  std::pair<int, std::string> call(std::string_view method, std::string_view path, std::string_view body = "") {
    const std::string answer = ::call(port, cat(method, ' ', path, " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(),
                                                "\r\nConnection: close\r\n\r\n", body));
    const size_t end = answer.find("\r\n\r\n");
    REQUIRE(end != answer.npos);
    REQUIRE(answer.ends_with("(end)"));
    return {std::stoi(answer.substr(9, 3)), answer.substr(end + 4, answer.size() - end - 9)};
  }
  std::string post(std::string_view path, std::string_view body) {
    const auto [status, text] = call("POST", path, body);
    INFO("answer: ", text);
    CHECK(status == 200);
    return text;
  }
};

ApiService::Load saying(std::vector<TokenId> script) {
  return [script = std::move(script)] {
    auto lm = std::make_unique<FakeLm>();
    lm->model.script = script;
    return lm;
  };
}

// The data of a stream's events.
std::vector<std::string> events(const std::string& body) {
  std::vector<std::string> out;
  for (size_t at = 0; (at = body.find("data: ", at)) != body.npos;) {
    const size_t end = body.find("\n\n", at);
    REQUIRE(end != body.npos);
    out.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return out;
}

std::string text_of(const std::string& json, bool chat, bool stream) {
  const JsonDoc doc = JsonDoc::parse(json, "answer");
  const Json choice = doc["choices"][size_t(0)];
  const Json text = !chat ? choice["text"] : stream ? choice["delta"]["content"] : choice["message"]["content"];
  return text.is_string() ? std::string(text.string("text")) : std::string();
}

constexpr TokenId kHello = FakeTokenizer::kFirstPiece, kWorld = kHello + 1, kHalfA = kHello + 2, kHalfB = kHello + 3;
constexpr std::string_view kLlama = "\xf0\x9f\xa6\x99";

}  // namespace

TEST_CASE("api: a character that comes in two tokens is never cut between chunks") {
  Running r(saying({kHello, kHalfA, kHalfB, kWorld, kHalfA}));
  for (const bool chat : {true, false}) {
    const std::string path = chat ? "/v1/chat/completions" : "/v1/completions";
    const std::string input = chat ? R"("messages":[{"role":"user","content":"a"}])" : R"("prompt":"a")";
    const std::string whole = text_of(r.post(path, cat('{', input, R"(,"temperature":0})")), chat, false);
    CHECK(whole == cat("Hello", kLlama, " world\xef\xbf\xbd"));
    // A chunk of the transfer is one event, and an event one whole text.
    const std::string body = r.post(path, cat('{', input, R"(,"temperature":0,"stream":true})"));
    std::string joined;
    bool llama = false;
    const std::vector<std::string> all = events(body);
    for (const std::string& e : all) {
      if (e == "[DONE]") continue;
      const std::string text = text_of(e, chat, true);
      llama |= text.find(kLlama) != text.npos;
      joined += text;
    }
    CHECK(llama);
    CHECK(joined == whole);
    CHECK(all.back() == "[DONE]");
  }
}

TEST_CASE("api: the server listens before the model is there") {
  std::atomic<bool> go{false};
  Running r([&] {
    while (!go) ::usleep(1000);
    return std::make_unique<FakeLm>();
  });
  CHECK(r.call("GET", "/health").first == 200);
  CHECK(r.call("GET", "/ready").first == 503);
  CHECK(r.call("GET", "/v1/models").first == 503);
  CHECK(r.call("GET", "/metrics").second.find("\ntealight_ready 0\n") != std::string::npos);
  Client early(r.port), gone(r.port);
  for (Client* c : {&early, &gone})
    c->send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\nConnection: close\r\n\r\n{\"prompt\":\"a\"}");
  ::usleep(50'000);
  gone.close();
  ::usleep(50'000);
  go = true;
  has(early.read(), "\"text\":\"Hello world\"");             // it waited
  CHECK(r.call("GET", "/ready").first == 200);
  CHECK(r.call("GET", "/v1/models/fake").first == 200);
}

TEST_CASE("api: the end may come before the model") {
  const Running r([] {
    ::usleep(200'000);
    return std::make_unique<FakeLm>();
  });
}

TEST_CASE("api: requests beyond the queue are refused while the model is loaded") {
  std::atomic<bool> go{false};
  ApiOptions options;
  options.scheduler.queue = 1;
  Running r([&] {
    while (!go) ::usleep(1000);
    return std::make_unique<FakeLm>();
  }, options);
  Client first(r.port);
  first.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\nConnection: close\r\n\r\n{\"prompt\":\"a\"}");
  ::usleep(50'000);
  const auto [status, body] = r.call("POST", "/", R"({"prompt":"a"})");
  CHECK(status == 503);
  CHECK(body.find("queue_full") != body.npos);
  go = true;
  has(first.read(), "200 OK");
}

TEST_CASE("api: an error of the model in the middle of a stream is an event") {
  const auto load = [] {
    auto lm = std::make_unique<FakeLm>();
    lm->model.say("abcdefgh");
    lm->model.fail_at = 3;
    return lm;
  };
  Running r(load);
  const std::vector<std::string> all = events(r.post("/v1/completions", R"({"prompt":"a","stream":true})"));
  REQUIRE(all.size() >= 2);
  const JsonDoc error = JsonDoc::parse(all[all.size() - 2], "event");
  CHECK(error["error"]["message"].is_string());
  CHECK(all.back() == "[DONE]");
  CHECK(r.call("POST", "/v1/completions", R"({"prompt":"a"})").first == 400);
}

TEST_CASE("api: log-probabilities of a completion") {
  Running r(saying({kHello, kHalfA, kHalfB, kWorld}));
  const JsonDoc doc = JsonDoc::parse(r.post("/v1/completions", R"({"prompt":"a","temperature":0,"max_tokens":4,"logprobs":1})"), "answer");
  const Json l = doc["choices"][size_t(0)]["logprobs"];
  CHECK(l["tokens"].size() == 4);
  CHECK(l["tokens"][size_t(0)].string("") == "Hello");
  CHECK(l["top_logprobs"][size_t(0)]["Hello"].is_number());
  const int64_t offsets[] = {0, 5, 6, 6};                    // characters: the llama begins in the second token
  for (size_t i = 0; i < 4; i++) CHECK(l["text_offset"][i].integer("") == offsets[i]);
}

TEST_CASE("api: embeddings") {
  Running r([] { return std::make_unique<FakeLm>(); });      // its vectors are one number, 1
  CHECK(r.post("/v1/embeddings", R"({"input":"ab"})") ==
        R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[1]}],"model":"fake","usage":{"prompt_tokens":3,"total_tokens":3}})");
  const JsonDoc two = JsonDoc::parse(r.post("/embeddings", R"({"input":["ab",[1,2,3,4]],"encoding_format":"base64"})"), "answer");
  CHECK(two["data"].size() == 2);
  CHECK(two["data"][size_t(1)]["index"].integer("") == 1);
  CHECK(two["data"][size_t(1)]["embedding"].string("") == "AACAPw==");
  CHECK(two["usage"]["prompt_tokens"].integer("") == 7);
  for (std::string_view bad : {R"({})", R"({"input":[]})", R"({"input":""})", R"({"input":["a",1]})", R"({"input":[-1]})", R"({"input":{}})",
                               R"({"input":"a","dimensions":7})", R"({"input":"a","encoding_format":"x"})"}) {
    INFO("request: ", bad);
    CHECK(r.call("POST", "/v1/embeddings", bad).first == 400);
  }
  CHECK(r.call("GET", "/v1/embeddings").first == 405);
}

TEST_CASE("api: errors have OpenAI's form") {
  CHECK(api_error(Error(Code::request, "messages[0].role: is empty")).param == "messages[0].role");
  CHECK(api_error(Error(Code::request, "something else")).param == "");
  CHECK(api_error(Error(Code::request, "a b: c")).param == "");
  CHECK(api_error(Error(Code::memory, "x")).status == 503);
  CHECK(api_error(Error(Code::internal, "x")).status == 500);
  CHECK(api_error(Error(Code::request, "prompt: 9 tokens are more than the context of 8 tokens")).code == "context_length_exceeded");
  CHECK(ApiError{400, "m\"", "t", "c", ""}.json() == R"({"error":{"message":"m\"","type":"t","param":null,"code":"c"}})");
  Running broken([]() -> std::unique_ptr<Lm> { fail(Code::file, "no such file"); });
  broken.thread.join();
  CHECK(broken.code == 1);
  broken.thread = std::thread([] {});
}
