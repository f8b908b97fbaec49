// Stored prefixes: found, shared by processes, never wrong. A fake disk is not needed: damage is done to real files.
#include <doctest/doctest.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/task/generate.h"
#include "src/task/prefix_cache.h"
#include "tests/fixtures.h"

using namespace tealight;

namespace {

constexpr uint64_t kPlenty = 1 << 30;

struct Folder {
  std::string path = "/tmp/tealight_cache_XXXXXX";
  Folder() { REQUIRE(mkdtemp(path.data())); }
  ~Folder() {
    for (const std::string& n : names()) unlink((path + "/" + n).c_str());
    rmdir(path.c_str());
  }
  std::vector<std::string> names(std::string_view prefix = "") const {
    std::vector<std::string> v;
    if (DIR* d = opendir(path.c_str())) {
      while (const dirent* e = readdir(d))
        if (e->d_name[0] != '.' && std::string_view(e->d_name).starts_with(prefix)) v.push_back(e->d_name);
      closedir(d);
    }
    return v;
  }
  uint64_t bytes() const {
    uint64_t n = 0;
    for (const std::string& name : names("kv-")) {
      struct stat st;
      if (stat((path + "/" + name).c_str(), &st) == 0) n += uint64_t(st.st_size);
    }
    return n;
  }
};

std::unique_ptr<Lm> model(const std::string& folder = "", uint64_t limit = kPlenty, LoadOptions o = {}) {
  o.threads = 1, o.ctx = 400, o.cache_dir = folder, o.cache_bytes = limit;
  return Lm::load(fixture("gguf/llama.Q8_0.gguf"), o);
}

std::vector<TokenId> ids_from(size_t n, TokenId salt) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < n; i++) ids.push_back(TokenId(5 + (i * 37 + i * i * 11 + size_t(salt)) % 370));
  return ids;
}

GenerateRequest greedy() {
  GenerateRequest q;
  q.sampling.temperature = 0;
  q.max_tokens = 8;
  q.ignore_eos = true;
  return q;
}

struct Run {
  std::string text;
  size_t cached;
};
// One answer by a fresh generator, as a fresh process would give it.
Run answer(Lm& lm, const std::vector<TokenId>& prompt) {
  Generator g(lm);
  const GenerateResult r = g.generate(greedy(), prompt);
  return {r.text, r.cached_tokens};
}

}  // namespace

TEST_CASE("prefix cache: a stored prompt is not evaluated again, and the answer is the same") {
  const Folder folder;
  auto bare = model();
  const std::vector<TokenId> prompt = ids_from(150, 0);
  const std::string want = answer(*bare, prompt).text;
  auto cache = model(folder.path, kPlenty);
  CHECK(answer(*cache, prompt).cached == 0);
  const Run again = answer(*cache, prompt);
  CHECK(again.cached == 149);            // the last token's logits are wanted
  CHECK(again.text == want);

  // A longer prompt that begins with it, one that shares its beginning, a shorter one, and one that only looks alike.
  std::vector<TokenId> longer = prompt;
  for (TokenId id : ids_from(30, 5)) longer.push_back(id);
  Run r = answer(*cache, longer);
  CHECK(r.cached == 150);
  CHECK(r.text == answer(*bare, longer).text);
  std::vector<TokenId> forked(prompt.begin(), prompt.begin() + 140);
  forked.push_back(9);
  r = answer(*cache, forked);
  CHECK(r.cached == 128);
  CHECK(r.text == answer(*bare, forked).text);
  const std::vector<TokenId> shorter(prompt.begin(), prompt.begin() + 100);
  r = answer(*cache, shorter);
  CHECK(r.cached == 64);
  CHECK(r.text == answer(*bare, shorter).text);
  CHECK(answer(*cache, ids_from(150, 1)).cached == 0);

  // Another process, or this one tomorrow.
  auto theirs = model(folder.path);
  r = answer(*theirs, prompt);
  CHECK(r.cached == 149);
  CHECK(r.text == want);
}

TEST_CASE("prefix cache: another model, or another way to compute, finds nothing") {
  const Folder folder;
  const std::vector<TokenId> prompt = ids_from(80, 0);
  auto bare = model();
  auto cache = model(folder.path, kPlenty);
  answer(*cache, prompt);
  for (const LoadOptions& o : {LoadOptions{.kv = LoadOptions::Kv::f32}, LoadOptions{.activations = LoadOptions::Activations::f32}}) {
    auto theirs = model(folder.path, kPlenty, o);
    CHECK(answer(*theirs, prompt).cached == 0);
  }
  // The same file but for one bit of a weight.
  std::string bytes(Mapping::open(fixture("gguf/llama.Q8_0.gguf"))->text());
  bytes[bytes.size() - 40] = char(bytes[bytes.size() - 40] ^ 1);
  const std::string changed = folder.path + "/changed.gguf";
  const int fd = open(changed.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  REQUIRE(write(fd, bytes.data(), bytes.size()) == ssize_t(bytes.size()));
  close(fd);
  auto theirs = Lm::load(changed, {.threads = 1, .ctx = 400, .cache_dir = folder.path});
  CHECK(answer(*theirs, prompt).cached == 0);
}

TEST_CASE("prefix cache: a damaged, cut or foreign piece counts as absent") {
  const std::vector<TokenId> prompt = ids_from(150, 0);
  auto bare = model();
  const std::string want = answer(*bare, prompt).text;
  const Folder folder;
  auto cache = model(folder.path, kPlenty);
  answer(*cache, prompt);
  const std::vector<std::string> pieces = folder.names("kv-");
  REQUIRE(pieces.size() == 3);
  for (const std::string& name : pieces) {
    const std::string path = folder.path + "/" + name;
    const std::string good(Mapping::open(path)->text());
    const auto put = [&](const std::string& bytes) {
      const int fd = open(path.c_str(), O_WRONLY | O_TRUNC);
      REQUIRE(write(fd, bytes.data(), bytes.size()) == ssize_t(bytes.size()));
      close(fd);
    };
    for (size_t at : {size_t(0), size_t(9), size_t(20), size_t(30), size_t(45), size_t(60), good.size() / 2, good.size() - 1}) {
      std::string bad = good;
      bad[at] = char(bad[at] ^ 0x10);
      put(bad);
      const Run r = answer(*cache, prompt);
      CHECK(r.text == want);
      CHECK(r.cached < 149);
      CHECK(r.cached % 64 == 0);
    }
    for (size_t n : {size_t(0), size_t(10), size_t(56), size_t(100), good.size() - 1}) {
      put(good.substr(0, n));
      CHECK(answer(*cache, prompt).text == want);
    }
    put(std::string(Mapping::open(folder.path + "/" + pieces[name == pieces[0]])->text()));   // another piece's content
    CHECK(answer(*cache, prompt).text == want);
    chmod(path.c_str(), 0);              // unreadable (but for root)
    CHECK(answer(*cache, prompt).text == want);
    chmod(path.c_str(), 0600);
    put(good);
  }
  CHECK(answer(*cache, prompt).cached == 149);
}

TEST_CASE("prefix cache: its size has a limit, and the oldest pieces go") {
  auto bare = model();
  const Folder folder;
  auto cache = model(folder.path, kPlenty);
  answer(*cache, ids_from(128, 0));
  const uint64_t one = folder.bytes();
  const uint64_t limit = one * 5 / 2;
  auto small = model(folder.path, limit);
  for (TokenId salt = 1; salt < 6; salt++) {
    answer(*small, ids_from(128, salt));
    CHECK(folder.bytes() <= limit);
    usleep(20'000);                      // the clock of a file system is coarse
  }
  CHECK(answer(*small, ids_from(128, 5)).cached == 127);
  CHECK(answer(*small, ids_from(128, 0)).cached == 0);
  auto none = model(folder.path, 10);    // smaller than any piece: nothing is stored, nothing is lost
  CHECK(answer(*none, ids_from(100, 77)).cached == 0);
  CHECK(answer(*small, ids_from(128, 5)).cached == 127);
}

TEST_CASE("prefix cache: a folder that cannot be written is a warning, a place that is no folder an error") {
  auto bare = model();
  const Folder folder;
  const std::vector<TokenId> prompt = ids_from(100, 0);
  const std::string want = answer(*bare, prompt).text;
  // A full disk: no file may become longer than this.
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    auto cache = model(folder.path, kPlenty);
    setrlimit(RLIMIT_FSIZE, &limit);
    const bool same = answer(*cache, prompt).text == want && answer(*cache, prompt).cached == 0;
    _exit(same && folder.names("kv-").empty() && folder.names("tmp-").empty() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);

  const std::string file = folder.path + "/file";
  close(open(file.c_str(), O_WRONLY | O_CREAT, 0600));
  CHECK_THROWS_AS(model(file), Error);
  CHECK_THROWS_AS(model("/nonexistent/folder"), Error);
}

TEST_CASE("prefix cache: killed writers and several processes at once never make it wrong") {
  auto bare = model();
  const Folder folder;
  constexpr int kPrompts = 6;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::string> want;
  for (int i = 0; i < kPrompts; i++) {
    prompts.push_back(ids_from(size_t(90 + 40 * i), TokenId(i)));
    want.push_back(answer(*bare, prompts.back()).text);
  }
  uint64_t limit = kPlenty;
  const auto spawn = [&](int seed, int rounds) {
    const pid_t child = fork();
    if (child) return child;
    auto cache = model(folder.path, limit);
    for (int i = 0; i < rounds; i++) {
      const size_t p = size_t(seed * 7 + i * 5) % kPrompts;
      if (answer(*cache, prompts[p]).text != want[p]) _exit(1);
    }
    _exit(0);
  };
  // Killed at any moment.
  for (int i = 0; i < 30; i++) {
    const pid_t child = spawn(i, 1000);
    usleep(useconds_t(1000 + i * 1700));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));          // not one that found a wrong answer
  }
  // Together, with so little room that they push each other's pieces out.
  auto cache = model(folder.path, kPlenty);
  for (int i = 0; i < kPrompts; i++) CHECK(answer(*cache, prompts[size_t(i)]).text == want[size_t(i)]);
  limit = folder.bytes() / 2;
  std::vector<pid_t> children;
  for (int i = 0; i < 3; i++) children.push_back(spawn(i, 12));
  for (pid_t c : children) {
    int status = 0;
    waitpid(c, &status, 0);
    CHECK(status == 0);
  }
  for (int i = 0; i < kPrompts; i++) CHECK(answer(*cache, prompts[size_t(i)]).text == want[size_t(i)]);
}
