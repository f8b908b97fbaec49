#include <doctest/doctest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "src/host/stdio.h"
#include "tests/fake_lm.h"

using namespace tealight;

namespace {

struct Pipe {
  int fd[2];
  Pipe() { REQUIRE(::pipe(fd) == 0); }
  ~Pipe() { close_both(); }
  void close_write() {
    if (fd[1] >= 0) ::close(fd[1]);
    fd[1] = -1;
  }
  void close_both() {
    close_write();
    if (fd[0] >= 0) ::close(fd[0]);
    fd[0] = -1;
  }
};

std::string read_rest(int fd) {
  std::string out;
  char chunk[4096];
  for (ssize_t n; (n = ::read(fd, chunk, sizeof chunk)) > 0;) out.append(chunk, size_t(n));
  return out;
}

std::string read_one_line(int fd) {
  std::string out;
  for (char c; ::read(fd, &c, 1) == 1;) {
    out += c;
    if (c == '\n') break;
  }
  return out;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) lines.push_back(text.substr(begin, end - begin));
  CHECK(begin == text.size());  // every line has its end
  return lines;
}

// Serves `input` to its end and gives the lines of the answer.
std::vector<std::string> serve(FakeLm& lm, const std::string& input) {
  Pipe in, out;
  std::thread writer([&] {
    write_all(in.fd[1], input);
    in.close_write();
  });
  std::string answer;
  std::thread listener([&] { answer = read_rest(out.fd[0]); });
  CHECK(serve_stdio(lm, in.fd[0], out.fd[1]) == 0);
  out.close_write();
  writer.join();
  listener.join();
  return split(answer);
}

struct Line {
  JsonDoc doc;
  explicit Line(const std::string& text) : doc(JsonDoc::parse(text, "answer")) {}
  Json operator[](std::string_view key) const { return doc[key]; }
  Json choice() const { return doc["choices"][0]; }
  std::string error() const { return std::string(doc["error"]["message"].string("message")); }
};

}  // namespace

TEST_CASE("lines: cut anywhere, long ones skipped, the last one without an end") {
  const std::string text = "a\n\nbb\r\n" + std::string(20, 'x') + "\n" + std::string(10, 'y') + "\nend";
  for (size_t step : {1u, 2u, 3u, 7u, 100u}) {
    Pipe p;
    std::thread writer([&] {
      for (size_t i = 0; i < text.size(); i += step) write_all(p.fd[1], std::string_view(text).substr(i, step));
      p.close_write();
    });
    LineReader r(p.fd[0], 10);
    std::string_view line;
    const auto next = [&] {
      const LineReader::Status s = r.next(line);
      return s == LineReader::Status::line ? std::string(line) : s == LineReader::Status::too_long ? "TOO LONG" : "END";
    };
    CHECK(next() == "a");
    CHECK(next() == "");
    CHECK(next() == "bb\r");
    CHECK(next() == "TOO LONG");
    CHECK(next() == std::string(10, 'y'));
    CHECK(next() == "end");
    CHECK(next() == "END");
    CHECK(next() == "END");
    writer.join();
  }
  Pipe p;
  write_all(p.fd[1], std::string(50, 'x'));
  p.close_write();
  LineReader r(p.fd[0], 10);
  std::string_view line;
  CHECK(r.next(line) == LineReader::Status::too_long);
  CHECK(r.next(line) == LineReader::Status::end);
}

TEST_CASE("stdio: answers to prompts and messages") {
  FakeLm lm;
  const auto lines = serve(lm, R"({"prompt":"abc","temperature":0,"id":"q1"})" "\n"
                               R"({"messages":[{"role":"user","content":"hi"}],"temperature":0,"id":2,"max_tokens":5})" "\n");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] ==
        R"({"id":"q1","object":"text_completion","model":"fake","choices":[{"index":0,"text":"Hello world","finish_reason":"stop"}],)"
        R"("usage":{"prompt_tokens":4,"completion_tokens":12,"total_tokens":16,"prompt_tokens_details":{"cached_tokens":0}}})");
  const Line b(lines[1]);
  CHECK(b["id"].integer("id") == 2);
  CHECK(b["object"].string("object") == "chat.completion");
  CHECK(b.choice()["message"]["role"].string("role") == "assistant");
  CHECK(b.choice()["message"]["content"].string("content") == "Hello");
  CHECK(b.choice()["finish_reason"].string("finish") == "length");
}

TEST_CASE("stdio: stream gives delta lines and then the answer") {
  FakeLm lm;
  lm.model.say("a\xf0\x9f\xa6\x99\"");
  const std::string tail = R"(,"temperature":0,"stream":true,"stream_options":{"include_usage":true},"id":"s"})" "\n";
  const auto chat = serve(lm, R"({"messages":[{"role":"user","content":"hi"}])" + tail);
  REQUIRE(chat.size() == 4);
  CHECK(chat[1] == "{\"id\":\"s\",\"object\":\"chat.completion.chunk\",\"model\":\"fake\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xf0\x9f\xa6\x99\"},"
                   "\"finish_reason\":null}]}");
  std::string joined;
  for (size_t i = 0; i < 3; i++) joined += Line(chat[i]).choice()["delta"]["content"].string("delta");
  const Line last(chat[3]);
  CHECK(last["object"].string("object") == "chat.completion");
  CHECK(last.choice()["message"]["content"].string("content") == joined);
  CHECK(last.choice()["finish_reason"].string("finish") == "stop");
  CHECK(last["usage"]["completion_tokens"].integer("n") == 7);

  const auto plain = serve(lm, R"({"prompt":"hi")" + tail);
  REQUIRE(plain.size() == 4);
  CHECK(Line(plain[0]).choice()["text"].string("text") == "a");
  CHECK(Line(plain[0]).choice()["finish_reason"].is_null());
  CHECK(Line(plain[3])["object"].string("object") == "text_completion");
}

TEST_CASE("stdio: logprobs") {
  FakeLm lm;
  lm.model.script = {FakeTokenizer::kFirstPiece + 2, FakeTokenizer::kFirstPiece + 3};
  const auto lines = serve(lm, R"({"prompt":"x","temperature":0,"logprobs":true,"top_logprobs":2})" "\n");
  const Line a(lines[0]);
  const Json content = a.choice()["logprobs"]["content"];
  REQUIRE(content.size() == 3);
  CHECK(content[0]["token"].string("t") == "\xef\xbf\xbd\xef\xbf\xbd");  // half a character: its bytes tell
  CHECK(content[0]["bytes"][0].integer("b") == 0xf0);
  CHECK(content[0]["bytes"][1].integer("b") == 0x9f);
  CHECK(content[0]["logprob"].number("p") < 0);
  CHECK(content[0]["top_logprobs"].size() == 2);
  CHECK(content[2]["token"].string("t") == "<end>");
}

TEST_CASE("stdio: a bad line gets one error line, and the loop goes on") {
  FakeLm lm;
  lm.model.capacity = 20;
  const std::string good = R"({"prompt":"ok","temperature":0,"id":"good"})";
  const std::pair<std::string, std::string> cases[] = {
      {"{", "not valid JSON"},
      {"nonsense", "not valid JSON"},
      {"{\"prompt\":\"\xff\"}", "not valid JSON"},
      {std::string("{\"prompt\":\"a\0b\"}", 16), "not valid JSON"},
      {"[]", "expected a JSON object"},
      {std::string(100000, '['), "not valid JSON"},
      {R"({"prompt":5,"id":"x"})", "prompt: expected a string"},
      {R"({"prompt":"a","temperature":-3,"id":"x"})", "temperature: -3"},
      {R"({"prompt":"a","logit_bias":{"5000":1},"id":"x"})", "logit_bias: token 5000 is not in the vocabulary"},
      {R"({"prompt":"123456789012345678901234567890","id":"x"})", "prompt: 31 tokens are more than the context of 20 tokens"},
  };
  for (const auto& [bad, want] : cases) {
    INFO(bad.substr(0, 80));
    const auto lines = serve(lm, bad + "\n" + good + "\n");
    REQUIRE(lines.size() == 2);
    const Line error(lines[0]);
    INFO(lines[0]);
    CHECK(error["error"]["code"].string("code") == "invalid_request");
    CHECK(error.error().find(want) != std::string::npos);
    if (bad.find("\"id\"") != bad.npos) CHECK(error["id"].string("id") == "x");
    else CHECK(!error["id"]);
    CHECK(Line(lines[1]).choice()["text"].string("text") == "Hello world");
  }
}

TEST_CASE("stdio: NaN in the middle of a stream is an error of that request") {
  FakeLm lm;
  lm.model.fail_at = 3;
  lm.model.on_step = [&, n = 0]() mutable {
    if (++n == 4) lm.model.fail_at = -1;
  };
  const auto lines = serve(lm, R"({"prompt":"a","temperature":0,"stream":true,"id":1})" "\n" R"({"prompt":"a","temperature":0,"id":2})" "\n");
  REQUIRE(lines.size() == 5);
  CHECK(Line(lines[3]).error().find("NaN") != std::string::npos);
  CHECK(Line(lines[3])["id"].integer("id") == 1);
  CHECK(Line(lines[4]).choice()["text"].string("text") == "Hello world");
}

TEST_CASE("stdio: a line that is too long is skipped to its end") {
  FakeLm lm;
  const std::string good = R"({"prompt":"ok","temperature":0})" "\n";
  const auto lines = serve(lm, good + R"({"prompt":")" + std::string(RequestLimits::max_line_bytes + 100'000, 'x') + "\"}\n" + good);
  REQUIRE(lines.size() == 3);
  CHECK(Line(lines[1]).error().find("longer than 16777216 bytes") != std::string::npos);
  CHECK(Line(lines[2])["choices"].size() == 1);
}

TEST_CASE("stdio: empty lines, carriage returns, no line end at the end of input") {
  FakeLm lm;
  CHECK(serve(lm, "").empty());
  CHECK(serve(lm, "\n  \n\r\n").empty());
  CHECK(serve(lm, R"({"prompt":"ok","temperature":0})" "\r\n" R"({"prompt":"ok","temperature":0})").size() == 2);
}

TEST_CASE("stdio: nobody reads any more") {
  FakeLm lm;
  size_t steps = 0;
  lm.model.say(std::string(500, 'x'));
  lm.model.on_step = [&] { steps++; };
  Pipe in, out;
  ::close(std::exchange(out.fd[0], -1));
  write_all(in.fd[1], R"({"prompt":"ok","temperature":0,"stream":true})" "\n" R"({"prompt":"ok"})" "\n");
  CHECK(serve_stdio(lm, in.fd[0], out.fd[1]) == 0);  // though its input is still open
  CHECK(steps == 1);                                 // and it did not go on alone
}

TEST_CASE("stdio: SIGTERM ends it while it waits") {
  Pipe in, out;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    FakeLm lm;
    ::_exit(serve_stdio(lm, in.fd[0], out.fd[1]));
  }
  write_all(in.fd[1], R"({"prompt":"ok","temperature":0})" "\n");
  CHECK(read_one_line(out.fd[0]).starts_with("{\"object\""));
  ::kill(child, SIGTERM);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("stdio: SIGTERM lets the line under way end, and no other begins") {
  Pipe in, out;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    FakeLm lm;
    lm.model.on_step = [&, n = 0]() mutable {
      if (++n == 3) ::raise(SIGTERM);
    };
    ::_exit(serve_stdio(lm, in.fd[0], out.fd[1]));
  }
  const std::string line = R"({"prompt":"ok","temperature":0,"stream":true})" "\n";
  write_all(in.fd[1], line + line);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  out.close_write();
  const auto lines = split(read_rest(out.fd[0]));
  REQUIRE(lines.size() == 12);
  CHECK(Line(lines[11]).choice()["finish_reason"].string("finish") == "stop");
}
