#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <thread>

#include "src/base/base64.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/host/lambda/client.h"
#include "src/host/lambda/events.h"
#include "src/host/lambda/stream.h"

using namespace tealight;
using namespace tealight::lambda;
using Source = Event::Source;

namespace {

// A document and the event in it, since the event has views.
struct Parsed {
  JsonDoc doc;
  Event event;
  explicit Parsed(std::string_view json) : doc(JsonDoc::parse(json, "event")), event(read_event(doc.root())) {}
};

Source source(std::string_view json) { return Parsed(json).event.source; }

// A server for one connection: answers each request that it reads with the next response, then hangs up.
struct Server {
  int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  ApiAddress address;
  std::string received;
  std::thread thread;

  explicit Server(std::vector<std::string> responses) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0);
    REQUIRE(::listen(listener, 4) == 0);
    socklen_t size = sizeof any;
    REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&any), &size) == 0);
    REQUIRE(parse_address(cat("127.0.0.1:", ntohs(any.sin_port)), address));
    thread = std::thread([this, responses] {
      const int fd = ::accept(listener, nullptr, nullptr);
      HttpParser request(HttpParser::Kind::request);
      char c;
      for (const std::string& response : responses) {
        request.reset();
        while (request.state() != HttpParser::State::done && ::recv(fd, &c, 1, 0) == 1) {
          received += c;
          request.feed({&c, 1});
        }
        (void)!::write(fd, response.data(), response.size());
      }
      ::close(fd);
    });
  }
  ~Server() {
    if (thread.joinable()) thread.join();
    ::close(listener);
  }
  std::string all() {
    thread.join();
    return received;
  }
};

constexpr char kAccepted[] = "HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}";

}  // namespace

TEST_CASE("base64") {
  std::string out;
  for (std::string_view s : {"", "f", "fo", "foo", "foob", "fooba", "foobar", "\xff\xfe\xfd\x00"}) {
    CHECK(base64_decode(base64(s), out));
    CHECK(out == s);
  }
  CHECK(base64("foob") == "Zm9vYg==");
  CHECK(base64(std::string(1, '\0')) == "AA==");
  for (const char* bad :
       {"Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zh==", "Zm9=", "Zm 9", "%%%n", "Zg=\n", "=m9v", "Z=9v", "Zm-_"})
    CHECK_MESSAGE(!base64_decode(bad, out), bad);
}

namespace {

// What f writes to standard error.
template <class F>
std::string errors_of(F&& f) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const int kept = ::dup(2);
  ::dup2(ends[1], 2);
  f();
  ::dup2(kept, 2);
  ::close(kept);
  ::close(ends[1]);
  char text[4096];
  const ssize_t n = ::read(ends[0], text, sizeof text);
  ::close(ends[0]);
  return std::string(text, n > 0 ? size_t(n) : 0);
}

}  // namespace

TEST_CASE("log: lines as text and as JSON") {
  CHECK(errors_of([] { warn("a ", 1); }) == "tealight: warning: a 1\n");
  log_setup(true, LogLevel::warn);
  const std::string line = errors_of([] {
    log_line(LogLevel::info, "not written");
    log_request("id-1");
    log_line(LogLevel::error, "it \"broke\"");
    log_request({});
  });
  const std::string plain = errors_of([] { log_line(LogLevel::fatal, "x"); });
  log_setup(false, LogLevel::trace);
  const JsonDoc doc = JsonDoc::parse(line, "line");
  CHECK(line.ends_with("}\n"));
  CHECK(doc["level"].string("") == "ERROR");
  CHECK(doc["message"].string("") == "it \"broke\"");
  CHECK(doc["requestId"].string("") == "id-1");
  CHECK(!JsonDoc::parse(plain, "line")["requestId"]);
  // The time is that of the system, to the second or the one before.
  const std::string_view time = doc["timestamp"].string("");
  CHECK(time.size() == 24);
  bool near = false;
  for (time_t t = ::time(nullptr), i = 0; i < 3; i++) {
    const time_t then = t - i;
    tm parts{};
    ::gmtime_r(&then, &parts);
    char text[32];
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    near = near || time.starts_with(text);
  }
  CHECK(near);
}

TEST_CASE("lambda: addresses") {
  ApiAddress a;
  CHECK(parse_address("127.0.0.1:9001", a));
  const auto& v4 = reinterpret_cast<sockaddr_in&>(a.address);
  CHECK(v4.sin_family == AF_INET);
  CHECK(v4.sin_port == htons(9001));
  CHECK(v4.sin_addr.s_addr == htonl(0x7f000001));
  CHECK(a.host == "127.0.0.1:9001");
  CHECK(parse_address("localhost:1", a));
  CHECK(v4.sin_addr.s_addr == htonl(0x7f000001));
  CHECK(a.host == "localhost:1");
  CHECK(parse_address("[::1]:65535", a));
  CHECK(a.address.ss_family == AF_INET6);
  CHECK(a.size == sizeof(sockaddr_in6));
  for (const char* bad : {"", ":", "nonsense", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536",
                          "127.0.0.1:99999999999999999999", "127.0.0.1:9001x", "127.0.0.1: 9", "127.0.0.1:-1", "[::1]",
                          "::1:80", "[::1:80", "[nonsense]:80", "example.org:80", "127.0.0:80", ":80", "[]:80"})
    CHECK_MESSAGE(!parse_address(bad, a), bad);
}

TEST_CASE("lambda: which event it is") {
  CHECK(source("{\"prompt\":\"x\"}") == Source::plain);
  for (const char* odd :
       {"null", "7", "[]", "{}", "\"x\"", "{\"Records\":[]}", "{\"Records\":{}}",
        "{\"Records\":[{\"eventSource\":\"aws:s3\"}]}", "{\"requestContext\":{}}",
        "{\"requestContext\":7,\"httpMethod\":\"GET\"}", "{\"source\":7}", "{\"ping\":\"x\"}", "{\"warmer\":false}"})
    CHECK_MESSAGE(source(odd) == Source::plain, odd);
  CHECK(source("{\"requestContext\":{\"http\":{}}}") == Source::http_v2);
  CHECK(source("{\"requestContext\":{\"stage\":\"x\"},\"httpMethod\":\"GET\"}") == Source::http_v1);
  CHECK(source("{\"requestContext\":{\"elb\":{}},\"httpMethod\":\"GET\"}") == Source::alb);
  CHECK(source("{\"Records\":[{\"eventSource\":\"aws:sqs\"}]}") == Source::sqs);
  for (const char* warm : {"{\"source\":\"aws.events\"}", "{\"source\":\"aws.scheduler\"}",
                           "{\"source\":\"serverless-plugin-warmup\"}", "{\"warmer\":true}", "{\"ping\":true}"})
    CHECK(source(warm) == Source::warm_up);
  CHECK(source("{\"ping\":true,\"prompt\":\"x\"}") == Source::plain);
}

TEST_CASE("lambda: HTTP events") {
  Parsed v2(
      R"({"rawPath":"/prod/v1/completions","rawQueryString":"a=1&b=%20","headers":{"Content-Type":"application/json"},
    "requestContext":{"stage":"prod","http":{"method":"POST"}},"body":"{\"prompt\":1}","isBase64Encoded":false})");
  CHECK(v2.event.method == "POST");
  CHECK(v2.event.path == "/v1/completions");
  CHECK(v2.event.query == "a=1&b=%20");
  CHECK(v2.event.content_type == "application/json");
  CHECK(v2.event.body == "{\"prompt\":1}");
  CHECK(Parsed(R"({"rawPath":"/production","requestContext":{"stage":"prod","http":{}}})").event.path == "/production");
  CHECK(Parsed(R"({"rawPath":"/prod","requestContext":{"stage":"prod","http":{}}})").event.path == "/");
  CHECK(Parsed(R"({"requestContext":{"stage":"$default","http":{}}})").event.path == "/");

  Parsed v1(R"({"path":"/a","httpMethod":"PUT","headers":null,"multiValueHeaders":{"content-type":["text/plain","x"]},
    "multiValueQueryStringParameters":{"a":["1 2","ü"],"b":["&"]},"requestContext":{},"body":"aGk=","isBase64Encoded":true})");
  CHECK(v1.event.method == "PUT");
  CHECK(v1.event.query == "a=1%202&a=%C3%BC&b=%26");
  CHECK(v1.event.content_type == "text/plain");
  CHECK(v1.event.body == "hi");
  CHECK(v1.event.multi_value);
  CHECK(!v1.event.bad_body);

  Parsed alb(
      R"({"path":"/a","httpMethod":"GET","headers":{},"queryStringParameters":{"a":"1%202"},"requestContext":{"elb":{}},"body":"%%%","isBase64Encoded":true})");
  CHECK(alb.event.query == "a=1%202");
  CHECK(alb.event.bad_body);
  CHECK(!alb.event.multi_value);
  Parsed odd(
      R"({"requestContext":{"http":{"method":7}},"headers":[1],"body":{"a":1},"rawPath":null,"rawQueryString":[],"isBase64Encoded":"yes"})");
  CHECK(odd.event.method == "");
  CHECK(odd.event.body == "");
}

TEST_CASE("lambda: batches") {
  Parsed e(
      R"({"Records":[{"eventSource":"aws:sqs","eventSourceARN":"arn:q.fifo","messageId":"m0","body":"{}"},{"messageId":7},null]})");
  REQUIRE(e.event.records.size() == 3);
  CHECK(e.event.records[0].id == "m0");
  CHECK(e.event.records[0].body == "{}");
  CHECK(e.event.records[1].id == "");
  CHECK(e.event.fifo);
  CHECK(batch_answer({}) == "{\"batchItemFailures\":[]}");
  CHECK(batch_answer({"m0", "m\"1"}) ==
        "{\"batchItemFailures\":[{\"itemIdentifier\":\"m0\"},{\"itemIdentifier\":\"m\\\"1\"}]}");
}

TEST_CASE("lambda: answers") {
  Event e;
  e.source = Source::http_v2;
  Answer a;
  a.body = "{\"a\":1}";
  CHECK(
      http_answer(e, a) ==
      R"({"statusCode":200,"headers":{"content-type":"application/json"},"body":"{\"a\":1}","isBase64Encoded":false})");
  e.source = Source::alb;
  e.multi_value = true;
  a.status = 404;
  a.body = "\xff";
  CHECK(
      http_answer(e, a) ==
      R"({"statusCode":404,"statusDescription":"404 Not Found","multiValueHeaders":{"content-type":["application/json"]},"body":"/w==","isBase64Encoded":true})");
  CHECK(stream_prelude(200, "text/event-stream") ==
        "{\"statusCode\":200,\"headers\":{\"content-type\":\"text/event-stream\"}}" + std::string(8, '\0'));
  CHECK(error_body("Runtime.X", "it \"broke\"") ==
        R"({"errorMessage":"it \"broke\"","errorType":"Runtime.X","stackTrace":[]})");
  CHECK(error_body("Runtime.X", "") == R"({"errorMessage":"Runtime.X","errorType":"Runtime.X","stackTrace":[]})");
  const Answer bad = http_error(Error(Code::request, "top_p: is 7"));
  CHECK(bad.status == 400);
  CHECK(JsonDoc::parse(bad.body, "answer")["error"]["message"].string("") == "top_p: is 7");
  CHECK(http_error(Error(Code::internal, "x")).status == 500);
  for (int c = 0; c <= int(Code::internal); c++) {
    const std::string_view type = error_type(Code(c));
    CHECK(type.starts_with("Runtime."));
    CHECK(type.substr(8).find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == type.npos);
  }
}

TEST_CASE("lambda: a connection is kept, and replaced when it is gone") {
  Server server({"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", kAccepted});
  Connection c(server.address, "test/1");
  REQUIRE(c.call("GET", "/a"));
  CHECK(c.take_body() == "abc");
  CHECK(!c.reused());
  REQUIRE(c.call("POST", "/b", "X: y\r\n", std::string(100'000, 'z')));
  CHECK(c.reused());
  CHECK(c.response().status() == 202);
  const std::string sent = server.all();
  CHECK(sent.starts_with(
      cat("GET /a HTTP/1.1\r\nHost: ", server.address.host, "\r\nUser-Agent: test/1\r\n\r\nPOST /b HTTP/1.1\r\n")));
  CHECK(sent.ends_with("X: y\r\nContent-Length: 100000\r\n\r\n" + std::string(100'000, 'z')));
  ::shutdown(server.listener, SHUT_RDWR);
  CHECK(!c.call("GET", "/c"));  // the server has hung up
  CHECK(!c.error().empty());
  CHECK(!c.call("GET", "/c"));  // and does not listen
  CHECK(!c.reused());
}

TEST_CASE("lambda: responses that are cut or followed by more are errors") {
  for (const char* response : {"", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
                               "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", "nonsense\r\n\r\n"}) {
    Server server({response});
    Connection c(server.address, "t");
    CHECK_MESSAGE(!c.call("GET", "/"), response);
  }
  Server until_end({"HTTP/1.1 200 OK\r\n\r\nall"});
  Connection c(until_end.address, "t");
  CHECK(c.call("GET", "/"));
  CHECK(c.take_body() == "all");
}

TEST_CASE("lambda: a streamed answer") {
  for (const bool fails : {false, true}) {
    Server server({kAccepted});
    Connection c(server.address, "t");
    ResponseStream s(c);
    s.prepare("id-1", "inv-1", "text/plain", "prelude", 0);
    CHECK(!s.begun());
    CHECK(s.write("first "));
    CHECK(s.begun());
    CHECK(!s.gone());
    CHECK(s.write("second "));
    CHECK(s.write("third"));
    CHECK((fails ? s.fail("Runtime.X", "{}") : s.end()));
    CHECK(!s.begun());
    const std::string sent = server.all();
    CHECK(sent.starts_with("POST /2018-06-01/runtime/invocation/id-1/response HTTP/1.1\r\n"));
    CHECK(sent.find("Lambda-Runtime-Function-Response-Mode: streaming\r\nTransfer-Encoding: chunked\r\nTrailer: "
                    "Lambda-Runtime-Function-Error-Type, "
                    "Lambda-Runtime-Function-Error-Body\r\nLambda-Runtime-Invocation-Id: "
                    "inv-1\r\n\r\n7\r\nprelude\r\n6\r\nfirst \r\n") != sent.npos);
    HttpParser p(HttpParser::Kind::request);
    CHECK(p.feed(sent) == sent.size());
    CHECK(p.state() == HttpParser::State::done);
    CHECK(p.body() == "preludefirst second third");
    CHECK(p.trailer(kErrorTypeHeader) == (fails ? "Runtime.X" : ""));
    CHECK(p.trailer(kErrorBodyHeader) == (fails ? "e30=" : ""));
  }
}

TEST_CASE("lambda: a stream that nobody reads") {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0);
  REQUIRE(::listen(listener, 4) == 0);
  socklen_t size = sizeof any;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&any), &size);
  ApiAddress address;
  REQUIRE(parse_address(cat("127.0.0.1:", ntohs(any.sin_port)), address));
  {
    Connection c(address, "t");
    ResponseStream s(c);
    s.prepare("a", {}, "text/plain", {}, monotonic_us() + 200'000);
    const std::string piece(1 << 20, 'x');
    int pieces = 0;
    while (pieces < 1000 && s.write(piece)) pieces++;  // the socket's buffers fill, then the deadline ends the wait
    CHECK(pieces < 1000);
    CHECK(!s.write("more"));
    CHECK(!s.end());
  }
  Connection c(address, "t");
  ResponseStream s(c);
  s.prepare("a", {}, "text/plain", {}, 0);
  CHECK(s.write("x"));
  ::close(::accept(listener, nullptr, nullptr));
  const int peer = ::accept(listener, nullptr, nullptr);
  const linger reset{1, 0};
  ::setsockopt(peer, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  ::close(peer);
  CHECK(s.gone());
  CHECK(!s.write("y"));
  CHECK(!s.end());
  ::close(listener);
}
