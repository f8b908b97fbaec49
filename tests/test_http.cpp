#include <doctest/doctest.h>

#include "src/base/error.h"
#include "src/host/http.h"

using namespace tealight;
using State = HttpParser::State;

namespace {

constexpr auto kRequest = HttpParser::Kind::request;
constexpr auto kResponse = HttpParser::Kind::response;

// Everything that a parser knows, so that two ways of feeding can be compared.
std::string describe(const HttpParser& p) {
  return cat(int(p.state()), "|", p.error_status(), "|", p.error(), "|", p.method(), "|", p.target(), "|", p.path(),
             "|", p.query(), "|", p.status(), "|", p.keep_alive(), "|", p.expects_continue(), "|",
             p.header("content-type"), "|", p.trailer("x-end"), "|", p.body());
}

HttpParser parse(HttpParser::Kind kind, std::string_view bytes, bool end = false, HttpLimits limits = {}) {
  HttpParser p(kind, limits);
  p.feed(bytes);
  if (end) p.end_of_input();
  return p;
}

int refused(std::string_view request, HttpLimits limits = {}) {
  const HttpParser p = parse(kRequest, request, false, limits);
  INFO(request);
  CHECK(p.state() == State::failed);
  CHECK(!p.error().empty());
  CHECK(!p.keep_alive());
  return p.error_status();
}

const std::string kGet = "GET /v1/models?x=1&y=a%20b HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: test\r\n\r\n";
const std::string kPost =
    "POST /a HTTP/1.1\r\nhost:h\r\nContent-Type:  application/json \t\r\nCONTENT-LENGTH: 11\r\n\r\n{\"a\":\"\r\n\"}\n";
const std::string kChunked =
    "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\nTrailer: X-End\r\nExpect: 100-continue\r\n\r\n"
    "5\r\nhello\r\n0006;name=\"v\"\r\n world\r\n1 ;x\r\n!\r\n0\r\nX-End: yes\r\nX-More: \r\n\r\n";
const std::string kOk = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc";
const std::string kInterim =
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 7\r\n\r\n" + kOk;
const std::string kUntilEnd = "HTTP/1.0 200\r\nContent-Type: text/plain\r\n\r\nall of it";

}  // namespace

TEST_CASE("http: a request without a body") {
  HttpParser p(kRequest);
  CHECK(!p.started());
  CHECK(p.feed(kGet + "GET /next") == kGet.size());
  CHECK(p.state() == State::done);
  CHECK(p.feed("more") == 0);
  CHECK(p.method() == "GET");
  CHECK(p.target() == "/v1/models?x=1&y=a%20b");
  CHECK(p.path() == "/v1/models");
  CHECK(p.query() == "x=1&y=a%20b");
  CHECK(p.header("host") == "localhost:8080");
  CHECK(p.header("USER-AGENT") == "test");
  CHECK(p.has_header("Host"));
  CHECK(!p.has_header("Hos"));
  CHECK(p.header("x") == "");
  CHECK(p.keep_alive());
  p.reset();
  CHECK(!p.started());
  CHECK(p.header("host") == "");
  CHECK(p.feed("\r\n\r\n" + kGet) == kGet.size() + 4);  // empty lines before a request
  CHECK(p.state() == State::done);
}

TEST_CASE("http: bodies by length, in chunks with trailers, and to the end of the connection") {
  HttpParser p = parse(kRequest, kPost);
  CHECK(p.state() == State::done);
  CHECK(p.header("content-type") == "application/json");
  CHECK(p.body() == "{\"a\":\"\r\n\"}\n");
  CHECK(p.take_body().size() == 11);

  p = parse(kRequest, kChunked);
  CHECK(p.state() == State::done);
  CHECK(p.body() == "hello world!");
  CHECK(p.trailer("x-end") == "yes");
  CHECK(p.trailer("x-more") == "");
  CHECK(p.trailer("host") == "");
  CHECK(p.header("x-end") == "");
  CHECK(p.keep_alive());

  p = parse(kResponse, kUntilEnd);
  CHECK(p.state() == State::body);
  p.end_of_input();
  CHECK(p.state() == State::done);
  CHECK(p.body() == "all of it");
  CHECK(p.status() == 200);
  CHECK(!p.keep_alive());
}

TEST_CASE("http: responses") {
  HttpParser p = parse(kResponse, kInterim);
  CHECK(p.state() == State::done);
  CHECK(p.status() == 200);
  CHECK(p.body() == "abc");
  CHECK(!p.has_header("link"));
  CHECK(p.keep_alive());
  CHECK(parse(kResponse, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n").state() == State::done);
  CHECK(parse(kResponse, "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n").state() == State::done);
  CHECK(parse(kResponse, "HTTP/1.1 410 \r\nContent-Length: 0\r\n\r\n").status() == 410);
  CHECK(parse(kResponse, "HTTP/1.1 101 Switching Protocols\r\n\r\n").state() == State::failed);
  std::string endless;
  for (int i = 0; i < 17; i++) endless += "HTTP/1.1 102 Processing\r\n\r\n";
  CHECK(parse(kResponse, endless).state() == State::failed);
  for (const char* line :
       {"HTTP/1.1 20\r\n", "HTTP/1.1 2000\r\n", "HTTP/1.1 099\r\n", "HTTP/1.1  200\r\n", "HTTP/2 200\r\n",
        "HTTP/2.0 200 OK\r\n", "\r\n", "ICY 200 OK\r\n", "HTTP/1.1 200 a\rb\r\n", "HTTP/1.1 200 OK\n"})
    CHECK_MESSAGE(parse(kResponse, line).state() == State::failed, line);
}

TEST_CASE("http: any split of the bytes gives the same message") {
  const std::pair<HttpParser::Kind, std::string> messages[] = {
      {kRequest, kGet},      {kRequest, kPost},      {kRequest, kChunked},
      {kResponse, kInterim}, {kResponse, kUntilEnd}, {kRequest, "GET / HTTP/1.1\r\na : b\r\n\r\n"}};
  for (const auto& [kind, bytes] : messages) {
    const std::string whole = describe(parse(kind, bytes, true));
    HttpParser slow(kind);
    for (char c : bytes) slow.feed({&c, 1});
    slow.end_of_input();
    CHECK(describe(slow) == whole);
    for (size_t i = 0; i <= bytes.size(); i++) {
      HttpParser p(kind);
      const std::string_view all = bytes;
      p.feed(all.substr(0, i));
      CHECK(p.started() == (i > 0));
      p.feed(all.substr(i));
      p.end_of_input();
      CHECK(describe(p) == whole);
    }
  }
}

TEST_CASE("http: a message that is cut is never done") {
  for (const std::string& bytes : {kGet, kPost, kChunked, kOk, kInterim}) {
    const auto kind = bytes.starts_with("HTTP") ? kResponse : kRequest;
    for (size_t i = 0; i < bytes.size(); i++) {
      HttpParser p = parse(kind, std::string_view(bytes).substr(0, i));
      CHECK(p.state() != State::done);
      CHECK(p.state() != State::failed);
      p.end_of_input();
      CHECK(p.state() == State::failed);
    }
  }
}

TEST_CASE("http: what two readers could understand differently is refused") {
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n";
  CHECK(refused(post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n") == 400);
  CHECK(refused(post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n") == 400);
  CHECK(refused(post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\n") == 400);
  CHECK(parse(kRequest, post + "Content-Length: 3\r\nContent-Length: 03\r\n\r\nabc").state() == State::done);
  for (const char* length :
       {"", "-1", "+3", "3, 3", "3 3", "0x3", "3a", "1e2", "99999999999999999999", "18446744073709551619"})
    CHECK(refused(cat(post, "Content-Length: ", length, "\r\n\r\n")) == 400);
  CHECK(refused(post + "Content-Length: 576460752303423487\r\n\r\n") == 413);
  for (const char* coding :
       {"gzip", "gzip, chunked", "chunked, chunked", "identity", "xchunked", "chunked;q=1", "", "\"chunked\""})
    CHECK(refused(cat(post, "Transfer-Encoding: ", coding, "\r\n\r\n")) == 501);
  CHECK(refused(post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n") == 501);
  CHECK(refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n") == 400);
  for (const char* line : {"Content-Length : 3", "Content Length: 3", " folded: 3", "\tfolded", ": 3", "no colon",
                           "a\rb: 1", "a: 1\r2", "a: \x01", "a: \x7f"})
    CHECK(refused(cat(post, line, "\r\n\r\n")) == 400);
  CHECK(refused(post + "a: b\r\n continued\r\n\r\n") == 400);
  CHECK(refused(post + std::string("a: b\0c\r\n\r\n", 10)) == 400);
  CHECK(refused("GET / HTTP/1.1\nHost: h\n\n") == 400);
  CHECK(refused("GET / HTTP/1.1\r\nHost: h\r\n\n") == 400);
  CHECK(refused("GET / HTTP/1.1\r\n\r\n") == 400);  // Host is missing
  CHECK(refused("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n") == 400);
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  for (const char* chunk : {"\r\n", ";x\r\n", "g\r\n", "-1\r\n", "+1\r\n", "0x1\r\n", " 1\r\n", "1 \r\n", "1 1\r\n",
                            "1\n", "1;\x01\r\n", "1\r\nab\r\n", "1\r\na\n", "1\r\na\rbc", "11111111111111111\r\n"})
    CHECK(refused(chunked + chunk) == 400);
  CHECK(refused(chunked + "fffffff\r\n") == 413);
  CHECK(refused(chunked + "0\r\nbad trailer\r\n\r\n") == 400);
  CHECK(refused(chunked + "1;" + std::string(300, 'x')) == 400);
}

TEST_CASE("http: the first line") {
  const auto target = [](std::string_view t) {
    return parse(kRequest, cat("GET ", t, " HTTP/1.1\r\nHost: h\r\n\r\n"));
  };
  CHECK(target("*").path() == "*");
  CHECK(target("/").path() == "/");
  CHECK(target("/?").query() == "");
  CHECK(target("/a?b?c").query() == "b?c");
  CHECK(target("http://h:1/a/b?c").path() == "/a/b");
  CHECK(target("HTTPS://h?c").path() == "");
  CHECK(target("HTTPS://h?c").query() == "c");
  for (const char* t : {"a", "http", "http:/a", "://", "ftp://h/", "/a#b", "/a b", "/a\tb", "/\x80", "", " /", "**"})
    CHECK_MESSAGE(target(t).error_status() == 400, t);
  for (const char* line :
       {"GET /\r\n", "GET  / HTTP/1.1\r\n", "GET / HTTP/1.1 \r\n", "GET / http/1.1\r\n", "GET / HTTP/1.10\r\n",
        "G@T / HTTP/1.1\r\n", " GET / HTTP/1.1\r\n", "GET\r\n", "/ HTTP/1.1\r\n", "\x16\x03\x01\r\n"})
    CHECK(refused(line) == 400);
  CHECK(refused("GET / HTTP/2.0\r\n") == 505);
  CHECK(refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") == 505);
}

TEST_CASE("http: when the connection goes on") {
  const auto keeps = [](std::string_view version, std::string_view connection) {
    return parse(kRequest, cat("GET / ", version, "\r\nHost: h\r\n", connection, "\r\n")).keep_alive();
  };
  CHECK(keeps("HTTP/1.1", ""));
  CHECK(!keeps("HTTP/1.1", "Connection: Close\r\n"));
  CHECK(!keeps("HTTP/1.1", "Connection: keep-alive, close\r\n"));
  CHECK(!keeps("HTTP/1.1", "Connection: x\r\nConnection: ,close ,\r\n"));
  CHECK(keeps("HTTP/1.1", "Connection: closed\r\n"));
  CHECK(!keeps("HTTP/1.0", ""));
  CHECK(keeps("HTTP/1.0", "Connection: Keep-Alive\r\n"));
  CHECK(!keeps("HTTP/1.0", "Connection: keep-alive, close\r\n"));
}

TEST_CASE("http: Expect") {
  const auto post = [](std::string_view version, std::string_view expect, std::string_view rest) {
    return parse(kRequest, cat("POST / ", version, "\r\nHost: h\r\nExpect: ", expect, "\r\n", rest));
  };
  CHECK(post("HTTP/1.1", "100-Continue", "Content-Length: 2\r\n\r\n").expects_continue());
  CHECK(post("HTTP/1.1", "100-continue", "Content-Length: 2\r\n\r\n").state() == State::body);
  CHECK(!post("HTTP/1.1", "100-continue", "Content-Length: 0\r\n\r\n").expects_continue());
  CHECK(!post("HTTP/1.0", "100-continue", "Content-Length: 2\r\n\r\n").expects_continue());
  CHECK(post("HTTP/1.1", "200-ok", "Content-Length: 2\r\n\r\n").error_status() == 417);
}

TEST_CASE("http: limits") {
  const HttpLimits small{.head_bytes = 100, .headers = 3, .body_bytes = 10};
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n";
  CHECK(parse(kRequest, head + "Content-Length: 10\r\n\r\n0123456789", false, small).state() == State::done);
  CHECK(refused(head + "Content-Length: 11\r\n\r\n", small) == 413);
  CHECK(refused(head + "a: " + std::string(100, 'x'), small) == 431);
  CHECK(refused(head + "a: 1\r\nb: 1\r\nc: 1\r\n", small) == 431);
  CHECK(refused(std::string(101, 'x'), small) == 431);
  CHECK(refused(head + "Transfer-Encoding: chunked\r\n\r\n6\r\n012345\r\n5\r\n", small) == 413);
  CHECK(refused(head + "Transfer-Encoding: chunked\r\n\r\n0\r\na: 1\r\nb: 1\r\n", small) == 431);
  CHECK(refused(head + "Transfer-Encoding: chunked\r\n\r\n0\r\na: " + std::string(100, 'x'), small) == 431);
  CHECK(parse(kResponse, "HTTP/1.1 200 OK\r\n\r\n0123456789a", false, small).error_status() == 413);
  HttpParser fits(kRequest, {.head_bytes = kGet.size()}), not_quite(kRequest, {.head_bytes = kGet.size() - 1});
  fits.feed(kGet);
  not_quite.feed(kGet);
  CHECK(fits.state() == State::done);
  CHECK(not_quite.error_status() == 431);
}

TEST_CASE("http: writing") {
  std::string out;
  append_chunk(out, "hello");
  append_chunk(out, "");
  append_chunk(out, std::string(0x1a0, 'x'));
  CHECK(out == "5\r\nhello\r\n1a0\r\n" + std::string(0x1a0, 'x') + "\r\n");
  out.clear();
  append_header(out, "Content-Type", "text/plain; charset=utf-8");
  CHECK(out == "Content-Type: text/plain; charset=utf-8\r\n");
  CHECK_THROWS_AS(append_header(out, "a", "b\r\nc: d"), Error);
  CHECK_THROWS_AS(append_header(out, "a", "b\n"), Error);
  CHECK_THROWS_AS(append_header(out, "a b", "c"), Error);
  CHECK(http_reason(200) == "OK");
  CHECK(http_reason(404) == "Not Found");
}
