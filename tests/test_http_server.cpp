#include <doctest/doctest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/host/handler_service.h"
#include "src/host/http_server.h"
#include "src/host/listener.h"
#include "tests/http_client.h"

using namespace tealight;

namespace {

// Answers by path, on the server's thread or another one.
class TestService : public HttpService {
 public:
  ~TestService() override {
    for (std::thread& t : threads) t.join();
  }
  void handle(HttpRequest q, std::shared_ptr<HttpReply> reply) override {
    handled++;
    if (q.path == "/echo") return reply->send(200, "text/plain", cat(q.method, ' ', q.query, ' ', q.body));
    if (q.path == "/big") return reply->send(200, "text/plain", std::string(8 << 20, 'x'));
    if (q.path == "/expire") {
      reply->deadline_us = monotonic_us() + 50'000;
      kept = reply;
      return;
    }
    if (q.path == "/hold") {
      kept = reply;
      return;
    }
    threads.emplace_back([reply, path = std::string(q.path), this] {
      if (path == "/later") {
        ::usleep(30'000);
        return reply->send(202, "text/plain", "later");
      }
      reply->begin(200, "text/event-stream");
      if (path == "/endless") {
        const std::string piece(10'000, 'y');
        while (reply->write(piece)) ::usleep(100);
        cut_off = true;
        return reply->end();
      }
      for (int i = 0; i < 5; i++) {
        reply->write(cat("piece ", i, "\n"));
        ::usleep(5'000);
      }
      if (path == "/broken") reply->abort();
      else reply->end();
    });
  }
  void gone(HttpReply&) override { gone_count++; }
  void expired(HttpReply& reply) override { reply.send(200, "text/plain", "expired"); }
  void woken() override {
    if (stop) server->stop(3);
  }
  void drain() override {
    drained = true;
    if (kept) kept->send(200, "text/plain", "drained");
  }

  HttpServer* server = nullptr;
  std::shared_ptr<HttpReply> kept;
  std::vector<std::thread> threads;
  std::atomic<int> handled{0}, gone_count{0};
  std::atomic<bool> stop{false}, drained{false}, cut_off{false};
};

HttpServerOptions quiet() {
  HttpServerOptions o;
  o.access_log = HttpServerOptions::AccessLog::off;
  return o;
}

struct Running {
  TestService service;
  HttpServer server;
  int port = 0, code = -1;
  std::thread thread;
  explicit Running(HttpServerOptions options = quiet()) : server(service, std::move(options)) {
    service.server = &server;
    server.add(listen_tcp("127.0.0.1", port));
    thread = std::thread([this] { code = server.run(); });
  }
  void stop() {
    service.stop = true;
    server.wake();
    if (thread.joinable()) thread.join();
  }
  ~Running() { stop(); }
};

size_t count(const std::string& text, std::string_view part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) n++;
  return n;
}

constexpr std::string_view kClose = "Connection: close\r\n\r\n";
std::string get(std::string_view path) { return cat("GET ", path, " HTTP/1.1\r\nHost: x\r\n", kClose); }

}  // namespace

TEST_CASE("server: answers at once, later, in pieces; keeps the connection") {
  Running r;
  Client c(r.port);
  for (int i = 0; i < 3; i++) {
    c.send("POST /echo?a=b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nX-Request-Id: me-1\r\n\r\nhello");
    const std::string answer = c.read("hello");
    has(answer, "HTTP/1.1 200 OK\r\nDate: ");
    has(answer, "GMT\r\nContent-Type: text/plain\r\nX-Request-Id: me-1\r\nContent-Length: 14\r\n\r\nPOST a=b hello");
  }
  c.send("GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
  has(c.read("\r\n\r\nlater"), "HTTP/1.1 202 Accepted\r\n");
  c.send("GET /pieces HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string pieces = c.read("0\r\n\r\n");
  has(pieces, "Transfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 5; i++) has(pieces, cat("8\r\npiece ", i, "\n\r\n"));
  c.send("HEAD /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string head = c.read();
  has(head, "Connection: close\r\nContent-Length: 6\r\n\r\n(end)");
}

TEST_CASE("server: an unusable request id is replaced") {
  Running r;
  const std::string answer = call(r.port, "GET /echo HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\"b\r\nConnection: close\r\n\r\n");
  CHECK(answer.find("a\"b") == answer.npos);
  has(answer, "X-Request-Id: ");
}

TEST_CASE("server: pipelined requests are answered in order, however their bytes are cut") {
  Running r;
  std::string requests;
  for (int i = 0; i < 20; i++)
    requests += cat("POST ", i % 3 ? "/echo" : "/later", " HTTP/1.1\r\nHost: x\r\nContent-Length: ", cat("no ", i, ';').size(), "\r\n\r\nno ", i, ';');
  requests += get("/echo?last");
  for (size_t cut : {requests.size(), size_t(700), size_t(37)}) {
    Client c(r.port);
    for (size_t i = 0; i < requests.size(); i += cut) {
      c.send(std::string_view(requests).substr(i, cut));
      if (cut < 100) ::usleep(300);
    }
    const std::string answer = c.read();
    CHECK(count(answer, "HTTP/1.1 ") == 21);
    size_t at = 0;
    for (int i = 0; i < 20; i++)
      if (i % 3) {
        const size_t next = answer.find(cat("POST  no ", i, ';'), at);
        CHECK(next != answer.npos);
        at = next;
      }
    has(answer, "GET last (end)");
  }
}

TEST_CASE("server: chunked requests, and bodies that wait for 100 Continue") {
  Running r;
  has(call(r.port, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n4\r\nabcd\r\n2;x=y\r\nef\r\n0\r\n\r\n"), "POST  abcdef(end)");
  Client c(r.port);
  c.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\nConnection: close\r\n\r\n");
  CHECK(c.read("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  c.send("abc");
  has(c.read(), "POST  abc(end)");
}

TEST_CASE("server: HTTP/1.0 gets plain bytes up to the end of the connection") {
  Running r;
  const std::string answer = call(r.port, "GET /pieces HTTP/1.0\r\n\r\n");
  CHECK(answer.find("chunked") == answer.npos);
  has(answer, "\r\n\r\npiece 0\npiece 1\npiece 2\npiece 3\npiece 4\n(end)");
}

TEST_CASE("server: what is no request gets an answer and the end of the connection") {
  HttpServerOptions o = quiet();
  o.limits.body_bytes = 1000;
  Running r(o);
  has(call(r.port, "nonsense\r\n\r\n"), "HTTP/1.1 400 ");
  has(call(r.port, cat("GET / HTTP/1.1\r\nHost: x\r\nA: ", std::string(100'000, 'a'))), "HTTP/1.1 431 ");
  const std::string large = call(r.port, cat("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n", std::string(500'000, 'a')));
  has(large, "HTTP/1.1 413 ");
  has(large, "\"code\":\"request_too_large\"}}(end)");        // read although the client wrote on
  has(call(r.port, cat("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n", std::string(2000, 'a'))), "HTTP/1.1 413 ");
  CHECK(r.service.handled == 0);
}

TEST_CASE("server: slow clients are told, idle ones are closed") {
  HttpServerOptions o = quiet();
  o.head_us = o.body_us = 150'000;
  o.idle_us = 100'000;
  Running r(o);
  CHECK(call(r.port, "") == "(end)");
  Client slow(r.port);
  std::thread dribble([&] {
    for (char c : std::string_view("GET /echo HTTP/1.1\r\nHost: xxxxxxx")) {
      if (::send(slow.fd, &c, 1, MSG_NOSIGNAL) != 1) break;
      ::usleep(20'000);
    }
  });
  has(slow.read(), "HTTP/1.1 408 ");
  dribble.join();
  has(call(r.port, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"), "HTTP/1.1 408 ");
  Client idle(r.port);
  for (int i = 0; i < 3; i++) {
    idle.send("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    has(idle.read("GET  "), "200");
    ::usleep(60'000);
  }
  CHECK(idle.read() == "(end)");
}

TEST_CASE("server: a client that vanishes is noticed") {
  Running r;
  {
    Client c(r.port);
    c.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(wait_for([&] { return r.service.handled == 1; }));
  }
  CHECK(wait_for([&] { return r.service.gone_count == 1; }));
  CHECK(r.service.kept->gone());
  r.service.kept->send(200, "text/plain", "nobody reads");
  {
    Client c(r.port);
    c.send("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n");
    has(c.read("yyy"), "200 OK");
  }
  CHECK(wait_for([&] { return bool(r.service.cut_off); }));
  CHECK(wait_for([&] { return r.service.gone_count == 2; }));
}

TEST_CASE("server: a stream that is not read is cut off, with bounded memory") {
  HttpServerOptions o = quiet();
  o.max_unsent_bytes = 100'000;
  Running r(o);
  Client c(r.port);
  c.send("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(wait_for([&] { return bool(r.service.cut_off); }));
  const std::string all = c.read();
  CHECK(all.find("0\r\n\r\n(end)") == all.npos);                // the reader can tell that it is not whole
  CHECK(wait_for([&] { return r.service.gone_count == 1; }));
  has(call(r.port, get("/big")), "xxxx(end)");                  // whole answers may be larger
}

TEST_CASE("server: a reader that takes nothing is closed in the end") {
  HttpServerOptions o = quiet();
  o.write_us = 200'000;
  Running r(o);
  Client c(r.port);
  c.send(cat("GET /big HTTP/1.1\r\nHost: x\r\n\r\n", "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"));
  CHECK(wait_for([&] { return r.service.handled == 1; }));
  ::usleep(600'000);
  const std::string some = c.read();
  CHECK(some.size() < (8 << 20));
}

TEST_CASE("server: an answer that breaks off is not ended") {
  Running r;
  const std::string answer = call(r.port, get("/broken"));
  has(answer, "piece 4");
  CHECK(answer.find("0\r\n\r\n") == answer.npos);
}

TEST_CASE("server: deadlines") {
  Running r;
  has(call(r.port, get("/expire")), "\r\n\r\nexpired(end)");
}

TEST_CASE("server: keys") {
  HttpServerOptions o = quiet();
  o.api_keys = {"secret", "other"};
  Running r(o);
  const auto with = [&](std::string_view header) { return call(r.port, cat("GET /echo HTTP/1.1\r\nHost: x\r\n", header, kClose)); };
  for (std::string_view good : {"Authorization: Bearer secret\r\n", "authorization: bearer other\r\n"}) has(with(good), "HTTP/1.1 200 ");
  for (std::string_view bad : {"", "Authorization: Bearer secre\r\n", "Authorization: Bearer secrets\r\n", "Authorization: secret\r\n",
                               "Authorization: Bearer \r\n", "Authorization: Basic secret\r\n"}) {
    const std::string answer = with(bad);
    has(answer, "HTTP/1.1 401 ");
    has(answer, "WWW-Authenticate: Bearer\r\n");
    has(answer, "\"code\":\"invalid_api_key\"");
  }
  // Refused before the body has come.
  has(call(r.port, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"), "HTTP/1.1 401 ");
  has(call(r.port, get("/health")), "HTTP/1.1 200 ");
  CHECK(r.service.handled == 3);
}

TEST_CASE("server: browsers") {
  HttpServerOptions o = quiet();
  o.cors = "https://a.example";
  Running r(o);
  const std::string preflight = call(r.port, cat("OPTIONS /v1/x HTTP/1.1\r\nHost: x\r\nAccess-Control-Request-Headers: x-a, x-b\r\n", kClose));
  has(preflight, "HTTP/1.1 204 ");
  has(preflight, "Access-Control-Allow-Origin: https://a.example\r\n");
  has(preflight, "Access-Control-Allow-Headers: x-a, x-b\r\n");
  has(preflight, "Vary: Origin\r\n");
  has(call(r.port, get("/echo")), "Access-Control-Allow-Origin: https://a.example\r\n");
  Running without;
  const std::string plain = call(without.port, cat("OPTIONS /v1/x HTTP/1.1\r\nHost: x\r\n", kClose));
  has(plain, "Allow: GET, HEAD, POST, OPTIONS\r\n");
  CHECK(plain.find("Access-Control") == plain.npos);
}

TEST_CASE("server: beyond the most connections idle ones make room, then new ones are refused") {
  HttpServerOptions o = quiet();
  o.max_connections = 3;
  Running r(o);
  Client idle(r.port);
  idle.send("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  has(idle.read("GET  "), "200");
  Client a(r.port), b(r.port);
  for (Client* c : {&a, &b}) c->send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(wait_for([&] { return r.service.handled == 3; }));
  Client c(r.port);
  c.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(wait_for([&] { return r.service.handled == 4; }));
  CHECK(idle.read() == "(end)");
  has(Client(r.port).read(), "HTTP/1.1 503 ");
}

TEST_CASE("server: the end lets finish what runs") {
  Running r;
  Client idle(r.port), busy(r.port), half(r.port);
  idle.send("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  has(idle.read("GET  "), "200");
  busy.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  half.send("GET /echo?half HTTP/1.1\r\nHo");
  CHECK(wait_for([&] { return r.service.handled == 2; }));
  ::usleep(20'000);
  r.service.stop = true;
  r.server.wake();
  CHECK(idle.read() == "(end)");
  has(busy.read(), "\r\n\r\ndrained(end)");
  half.send("st: x\r\n\r\n");
  const std::string last = half.read();
  has(last, "GET half (end)");
  has(last, "Connection: close\r\n");
  r.stop();
  CHECK(r.code == 3);
  CHECK(r.service.drained);
}

TEST_CASE("server: the grace has an end") {
  HttpServerOptions o = quiet();
  o.grace_us = 100'000;
  Running r(o);
  Client c(r.port);
  c.send("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n");
  has(c.read("yyy"), "200");
  std::thread reader([&] { c.read(); });
  r.stop();
  reader.join();
  CHECK(r.service.gone_count == 1);
}

TEST_CASE("listeners: names of sockets") {
  const std::string path = cat("/tmp/tealight-test-", ::getpid(), ".sock");
  const int fd = listen_unix(path, 0666);
  struct stat s;
  CHECK(::lstat(path.c_str(), &s) == 0);
  CHECK((s.st_mode & 0777) == 0666);
  CHECK_THROWS_WITH_AS(listen_unix(path), doctest::Contains("another process does"), Error);
  ::close(fd);
  ::close(listen_unix(path));                                    // nobody listens any more: replaced
  ::unlink(path.c_str());
  int port = 0;
  const int tcp = listen_tcp("localhost", port);
  CHECK(port > 0);
  CHECK_THROWS_WITH_AS(listen_tcp("127.0.0.1", port), doctest::Contains("Address already in use"), Error);
  ::close(tcp);
  CHECK_THROWS_WITH_AS(listen_tcp("example.com", port), doctest::Contains("names are not resolved"), Error);
  CHECK_THROWS_AS(listen_unix(std::string(200, 'a')), Error);
}

namespace {

struct Doubler : Handler {
  Answer handle(const Call& c) override {
    if (c.body == "fail") fail(Code::request, "body: is bad");
    if (c.body == "break") {
      c.write("some");
      fail(Code::internal, "in the middle");
    }
    if (c.body == "stream")
      for (int i = 0; i < 3; i++) c.write(cat("part ", i, ' '));
    Answer a;
    a.content_type = "text/plain";
    a.body = cat(c.path, ' ', c.query, ' ', c.content_type, ' ', c.body, c.body);
    return a;
  }
};

}  // namespace

TEST_CASE("a person's function over HTTP") {
  struct Service : HandlerService {
    using HandlerService::HandlerService;
    void woken() override {
      HandlerService::woken();
      if (stop) server->stop(0);
    }
    HttpServer* server = nullptr;
    std::atomic<bool> stop{false};
  };
  Service service([] { return std::make_unique<Doubler>(); }, 8);
  HttpServer server(service, quiet());
  service.server = &server;
  int port = 0, code = -1;
  server.add(listen_tcp("127.0.0.1", port));
  service.start(server);
  std::thread thread([&] { code = server.run(); });
  const auto post = [&](std::string_view body, std::string_view headers = "") {
    return call(port, cat("POST /a/b?c HTTP/1.1\r\nHost: x\r\n", headers, "Content-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body));
  };
  has(post("xy", "Content-Type: text/x\r\n"), "Content-Type: text/plain\r\n");
  has(post("xy", "Content-Type: text/x\r\n"), "\r\n\r\n/a/b c text/x xyxy(end)");
  const std::string stream = post("stream", "Accept: text/csv\r\n");
  has(stream, "Content-Type: text/csv\r\n");
  has(stream, "7\r\npart 0 \r\n");
  has(stream, "0\r\n\r\n(end)");
  has(post("fail"), "HTTP/1.1 400 ");
  has(post("fail"), "\"param\":\"body\"");
  CHECK(post("break").find("0\r\n\r\n") == std::string::npos);
  has(call(port, get("/ready")), "HTTP/1.1 200 ");
  has(call(port, get("/health")), "HTTP/1.1 200 ");
  has(call(port, get("/other")), "HTTP/1.1 405 ");
  service.stop = true;
  server.wake();
  thread.join();
  CHECK(code == 0);

  Service broken([]() -> std::unique_ptr<Handler> { fail(Code::file, "no file"); }, 8);
  HttpServer second(broken, quiet());
  broken.server = &second;
  port = 0;
  second.add(listen_tcp("127.0.0.1", port));
  broken.start(second);
  CHECK(second.run() == 1);
}
