// The loaded language model: the same bits whatever the threads, the batches and the instruction set; sequences and their errors.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <unistd.h>

#include "src/base/error.h"
#include "src/base/hash.h"
#include "src/io/gguf.h"
#include "src/task/lm.h"
#include "tests/fixtures.h"

using namespace tealight;

namespace {

std::vector<TokenId> some_ids(size_t n) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < n; i++) ids.push_back(TokenId(5 + (i * 37 + i * i * 11) % 370));
  return ids;
}

uint64_t logits_hash(const std::string& path, const LoadOptions& options, const std::vector<TokenId>& ids, size_t first_part = 0) {
  auto lm = Lm::load(path, options);
  auto sequence = lm->start(ids.size());
  Hasher hash;
  auto add = [](void* h, size_t, std::span<const float> l) { static_cast<Hasher*>(h)->update(l.data(), l.size_bytes()); };
  if (first_part) sequence->eval_all({ids.data(), first_part}, add, &hash);
  sequence->eval_all({ids.data() + first_part, ids.size() - first_part}, add, &hash);
  return hash.digest();
}

// The instruction set of this run is forced from outside; the portable one is the yardstick.
struct ForcedIsa {
  std::string before;
  bool had;
  explicit ForcedIsa(const char* word) {
    const char* b = std::getenv("TEALIGHT_ISA");
    had = b != nullptr;
    if (b) before = b;
    setenv("TEALIGHT_ISA", word, 1);
  }
  ~ForcedIsa() {
    if (had) setenv("TEALIGHT_ISA", before.c_str(), 1);
    else unsetenv("TEALIGHT_ISA");
  }
};

std::string error_of(auto f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message;
  }
  return "";
}

const char* const kModels[] = {"gguf/llama.Q8_0.gguf",        "gguf/llama.Q4_0.gguf",       "gguf/llama.Q5_0.gguf",
                               "gguf/llama.IQ4_NL.gguf",      "gguf/llama_k256.Q4_K_M.gguf", "gguf/gpt2.Q5_1.gguf",
                               "gguf/qwen3_moe.Q4_0.gguf",    "gguf/mixtral.Q8_0.gguf",      "gguf/gemma3_text.Q8_0.gguf",
                               "gguf/granite.F32.gguf",       "gguf/llama_k256.Q2_K.gguf",   "gguf/llama_k256.Q3_K_M.gguf",
                               "gguf/llama_k256.Q5_K_M.gguf", "gguf/llama_k256.Q6_K.gguf",   "gguf/llama_k256.IQ4_XS.gguf",
                               "gguf/llama.Q4_1.gguf",        "gguf/llama.F16.gguf",         "gguf/llama.BF16.gguf"};

}  // namespace

TEST_CASE("lm: the same bits for every instruction set, thread count and batch") {
  int tested = 0;
  const std::vector<TokenId> ids = some_ids(21);
  for (const char* name : kModels) {
    const std::string path = fixture(name);
    if (path.empty()) continue;
    CAPTURE(name);
    tested++;
    uint64_t expected;
    {
      ForcedIsa ref("ref");
      expected = logits_hash(path, {.threads = 1}, ids);
    }
    for (int threads : {1, 2, 3})
      for (int batch : {1, 7, 512}) CHECK(logits_hash(path, {.threads = threads, .batch = batch}, ids) == expected);
    CHECK(logits_hash(path, {.threads = 2}, ids, 5) == expected);   // in two calls
  }
  CHECK(tested >= 8);
}

TEST_CASE("lm: a sequence goes back and on, and gives the same bits") {
  auto lm = Lm::load(fixture("gguf/llama.Q8_0.gguf"), {.threads = 1, .batch = 4});
  const std::vector<TokenId> ids = some_ids(20);
  auto fresh = lm->start(32);
  const std::span<const float> a = fresh->eval(ids);
  const std::vector<float> expected(a.begin(), a.end());
  auto other = lm->start(32);
  other->eval(some_ids(29));
  other->rewind(0);
  other->eval({ids.data(), 12});
  other->eval(std::vector<TokenId>{7, 8, 9});
  CHECK(other->position() == 15);
  other->rewind(12);
  const std::span<const float> b = other->eval({ids.data() + 12, 8});
  CHECK(std::memcmp(expected.data(), b.data(), b.size_bytes()) == 0);
}

TEST_CASE("lm: what a sequence refuses leaves it as it was") {
  auto lm = Lm::load(fixture("gguf/llama.Q8_0.gguf"), {.threads = 1});
  auto s = lm->start(8);
  s->eval(some_ids(6));
  CHECK(error_of([&] { s->eval(some_ids(3)); }).find("its context holds 8") != std::string::npos);
  CHECK(error_of([&] { s->eval(std::vector<TokenId>{1, 99999}); }).find("99999") != std::string::npos);
  CHECK(error_of([&] { s->eval(std::vector<TokenId>{-1}); }).find("-1") != std::string::npos);
  CHECK(!error_of([&] { s->eval({}); }).empty());
  CHECK(s->position() == 6);
  s->eval(some_ids(2));
  CHECK(s->position() == 8);
}

TEST_CASE("lm: a model that needs more memory than there is says so with both numbers") {
  const std::string e = error_of([] { Lm::load(fixture("gguf/llama.Q8_0.gguf"), {.threads = 1, .ctx = 2'000'000'000}); });
  CHECK(e.find("needs") != std::string::npos);
  CHECK(e.find("there are") != std::string::npos);
  CHECK(!error_of([] { Lm::load(fixture("gguf/llama.Q8_0.gguf"), {.threads = 1})->start(2'000'000'000); }).empty());
}

TEST_CASE("lm: long rope factors begin to hold for the whole sequence when it grows past the original length") {
  const std::string path = fixture("models/phi3_longrope");
  REQUIRE(!path.empty());
  auto lm = Lm::load(path, {.threads = 1});
  const std::vector<TokenId> ids = some_ids(40);   // the original length is 32
  auto at_once = lm->start(64), grown = lm->start(64);
  const std::span<const float> a = at_once->eval(ids);
  const std::vector<float> expected(a.begin(), a.end());
  std::span<const float> b;
  for (TokenId id : ids) b = grown->eval({&id, 1});
  CHECK(std::memcmp(expected.data(), b.data(), b.size_bytes()) == 0);
  grown->rewind(10);                               // and back: the short ones hold again
  b = grown->eval({ids.data() + 10, 10});
  const std::vector<float> short_again(b.begin(), b.end());
  auto fresh = lm->start(64);
  const std::span<const float> c = fresh->eval({ids.data(), 20});
  CHECK(std::memcmp(short_again.data(), c.data(), c.size_bytes()) == 0);
}

TEST_CASE("lm: two sequences of one model do not see each other") {
  auto lm = Lm::load(fixture("gguf/qwen3_moe.Q4_0.gguf"), {.threads = 2});
  const std::vector<TokenId> ids = some_ids(12);
  auto alone = lm->start(16);
  std::span<const float> l = alone->eval(ids);
  const std::vector<float> expected(l.begin(), l.end());
  auto a = lm->start(16), b = lm->start(16);
  for (size_t i = 0; i < ids.size(); i++) {
    TokenId other = TokenId(300 - TokenId(i));
    b->eval({&other, 1});
    l = a->eval({&ids[i], 1});
  }
  CHECK(std::memcmp(expected.data(), l.data(), l.size_bytes()) == 0);
}

TEST_CASE("lm: sequences evaluated together get the bits that each gets alone") {
  for (const char* file : {"gguf/llama.Q8_0.gguf", "gguf/qwen3_moe.Q4_0.gguf"}) {
    auto lm = Lm::load(fixture(file), {.threads = 2, .batch = 7});
    const std::vector<TokenId> ids = some_ids(40);
    std::vector<std::unique_ptr<Sequence>> alone, joint;
    const size_t parts[4][3] = {{20, 1, 1}, {1, 9, 1}, {3, 1, 1}, {5, 6, 2}};
    for (int i = 0; i < 4; i++) alone.push_back(lm->start(64)), joint.push_back(lm->start(64));
    size_t at[4] = {0, 1, 2, 3};
    for (int step = 0; step < 3; step++) {
      std::vector<SequenceWork> work;
      for (size_t i = 0; i < 4; i++) work.push_back({joint[i].get(), {ids.data() + at[i], parts[i][step]}, {}, {}});
      lm->eval(work);
      for (size_t i = 0; i < 4; i++) {
        const std::vector<float> got(work[i].logits.all.begin(), work[i].logits.all.end());
        const std::span<const float> want = alone[i]->eval({ids.data() + at[i], parts[i][step]});
        REQUIRE(!work[i].error);
        REQUIRE(got.size() == want.size());
        CHECK(std::memcmp(got.data(), want.data(), want.size_bytes()) == 0);
        at[i] += parts[i][step];
      }
    }
  }
}

TEST_CASE("lm: in a joint evaluation one sequence's error is its own") {
  auto lm = Lm::load(fixture("gguf/llama.Q8_0.gguf"), {.threads = 1});
  const std::vector<TokenId> ids = some_ids(8), wrong = {3, 99999};
  auto a = lm->start(8), b = lm->start(8), c = lm->start(4), alone = lm->start(8);
  SequenceWork work[] = {{a.get(), ids, {}, {}}, {b.get(), wrong, {}, {}}, {c.get(), ids, {}, {}}};
  lm->eval(work);
  REQUIRE(!work[0].error);
  CHECK(work[1].error->message.find("99999") != std::string::npos);
  CHECK(work[2].error->message.find("context holds 4") != std::string::npos);
  CHECK(b->position() == 0);
  CHECK(c->position() == 0);
  const std::span<const float> want = alone->eval(ids);
  CHECK(std::memcmp(want.data(), work[0].logits.all.data(), want.size_bytes()) == 0);
}

TEST_CASE("lm: a restored snapshot goes on with the same bits") {
  for (const char* file : {"gguf/llama.Q8_0.gguf", "gguf/gemma3_text.Q4_0.gguf", "models/phi3_longrope"}) {
    INFO(std::string(file));
    auto lm = Lm::load(fixture(file), {.threads = 1});
    const std::vector<TokenId> ids = some_ids(30);
    auto whole = lm->start(64), source = lm->start(48);   // the capacity is no part of a snapshot
    source->eval({ids.data(), 25});
    for (size_t n : {size_t(1), size_t(15), size_t(16), size_t(19), size_t(25)}) {
      CAPTURE(n);
      const uint64_t bytes = source->snapshot_bytes(n);
      REQUIRE(bytes == lm->start(16)->tile_bytes() * ((n + 15) / 16));
      std::vector<std::byte> state(bytes, std::byte(0xff)), again(bytes);
      source->save(0, n, state.data());
      auto restored = lm->start(64);
      restored->eval(some_ids(3));
      restored->restore({{ids.data(), n}, state});
      CHECK(restored->position() == n);
      restored->save(0, n, again.data());
      CHECK(again == state);             // what lies beyond n is zero, not what was there before
      whole->rewind(0);
      const std::span<const float> a = whole->eval(ids), b = restored->eval({ids.data() + n, ids.size() - n});
      CHECK(std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
    }
    CHECK(source->snapshot_bytes(26) == 0);
    std::vector<std::byte> state(source->snapshot_bytes(25));
    source->save(0, 25, state.data());
    auto small = lm->start(16);
    small->eval({ids.data(), 5});
    CHECK(error_of([&] { small->restore({{ids.data(), 25}, state}); }).find("does not fit") != std::string::npos);
    CHECK(error_of([&] { small->restore({{ids.data(), 3}, state}); }).find("bytes, expected") != std::string::npos);
    CHECK(small->position() == 5);       // as it was
  }
}

TEST_CASE("lm: a snapshot that is used where it lies is not written to") {
  auto lm = Lm::load(fixture("gguf/llama.Q8_0.gguf"), {.threads = 1});
  const std::vector<TokenId> ids = some_ids(40);
  auto source = lm->start(64), restored = lm->start(64), whole = lm->start(64);
  source->eval({ids.data(), 21});
  const size_t n = size_t(source->snapshot_bytes(21));
  std::vector<std::byte> memory(n + 64);
  const std::span<std::byte> state(memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64), n);
  source->save(0, 21, state.data());
  const std::vector<std::byte> before(state.begin(), state.end());
  for (int round = 0; round < 2; round++) {
    restored->restore({{ids.data(), 21}, state, true});
    const std::span<const float> b = restored->eval({ids.data() + 21, 19});
    whole->rewind(0);
    const std::span<const float> a = whole->eval(ids);
    CHECK(std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
    CHECK(std::equal(before.begin(), before.end(), state.begin()));
  }
}

TEST_CASE("lm: layers with a window keep it, and a little more") {
  constexpr size_t n = 700;
  const std::vector<TokenId> ids = some_ids(n);
  for (int batch : {16, 100}) {
    auto lm = Lm::load(fixture("gguf/gemma3_text.Q8_0.gguf"), {.threads = 1, .batch = batch}), whole = Lm::load(fixture("gguf/gemma3_text.Q8_0.gguf"), {.threads = 1, .keep_states = true});
    auto a = lm->start(n), b = whole->start(n);
    const auto same = [&](size_t from, size_t to) {
      const std::span<const float> x = a->eval({ids.data() + from, to - from}), y = b->eval({ids.data() + from, to - from});
      return std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
    };
    CHECK(same(0, 300));
    for (size_t i = 300; i < 500; i++) REQUIRE(same(i, i + 1));
    CHECK(same(500, n));
    // A little back it goes on at once, farther from the beginning; a sequence that has dropped nothing goes back to where it is told.
    CHECK(a->rewind(n - 20) == n - 20);
    CHECK(b->rewind(n - 20) == n - 20);
    CHECK(same(n - 20, n));
    CHECK(a->snapshot_bytes(n) == 0);    // it cannot be saved
    std::vector<std::byte> state(b->snapshot_bytes(n - 1));
    REQUIRE(!state.empty());
    b->save(0, n - 1, state.data());
    for (bool in_place : {false, true}) {
      a->restore({{ids.data(), n - 1}, state, in_place});
      b->rewind(n - 1);
      CHECK(same(n - 1, n));
    }
    b->rewind(0), a->rewind(0);
    CHECK(same(0, n));
    CHECK(a->rewind(100) == 0);
    CHECK(a->position() == 0);
    b->rewind(0);
    CHECK(same(0, 400));
  }
}

TEST_CASE("lm: sequences share what they have in common") {
  for (const char* file : {"gguf/llama.Q8_0.gguf", "gguf/gemma3_text.Q8_0.gguf", "models/phi3_longrope"}) {
    INFO(std::string(file));
    auto lm = Lm::load(fixture(file), {.threads = 1, .batch = 64});
    const std::vector<TokenId> ids = some_ids(420);
    const auto fresh = [&](std::vector<TokenId> all) {
      auto s = lm->start(500);
      const std::span<const float> l = s->eval(all);
      return std::vector<float>(l.begin(), l.end());
    };
    const auto logits = [](std::span<const float> l) { return std::vector<float>(l.begin(), l.end()); };
    auto a = lm->start(500), b = lm->start(500), c = lm->start(500);
    b->eval({ids.data() + 7, 50});       // which it loses
    a->eval({ids.data(), 410});
    REQUIRE(b->share(*a, 405));
    CHECK(b->position() == 405);
    REQUIRE(c->share(*b, 400));
    std::vector<TokenId> of_b(ids.begin(), ids.begin() + 405), of_c(ids.begin(), ids.begin() + 400);
    for (int i = 0; i < 20; i++) {       // each goes its way
      const TokenId x = TokenId(9 + i), y = TokenId(50 + i);
      of_b.push_back(x), of_c.push_back(y);
      const auto got_b = logits(b->eval({&x, 1})), got_c = logits(c->eval({&y, 1}));
      if (i == 19) CHECK(got_b == fresh(of_b));
      if (i == 19) CHECK(got_c == fresh(of_c));
    }
    CHECK(logits(a->eval({ids.data() + 410, 10})) == fresh(ids));
    a.reset();                           // the others live on
    b->rewind(b->position() - 5);
    of_b.resize(of_b.size() - 5);
    of_b.push_back(77);
    CHECK(logits(b->eval({&of_b.back(), 1})) == fresh(of_b));
    auto small = lm->start(64);
    small->eval({ids.data(), 10});
    CHECK(!small->share(*b, 300));       // does not fit
    CHECK(small->position() == 10);
  }
}

TEST_CASE("lm: a damaged value in the weights is an error of the request, not of the process") {
  // All activations become NaN: the file's output norm is made of NaN by its eps being fine and its weights infinite.
  std::string bytes(Mapping::open(fixture("gguf/llama.Q8_0.gguf"))->text());
  const Gguf file = Gguf::parse(Mapping::from_bytes(bytes));
  const WeightView* w = file.weights().find("blk.0.attn_norm.weight");
  REQUIRE(w);
  REQUIRE(w->dtype == Dtype::f32);
  const float nan = NAN;
  std::memcpy(bytes.data() + w->offset, &nan, 4);
  char path[] = "/tmp/tealight_test_XXXXXX";
  const int fd = mkstemp(path);
  REQUIRE(fd >= 0);
  REQUIRE(write(fd, bytes.data(), bytes.size()) == ssize_t(bytes.size()));
  close(fd);
  auto lm = Lm::load(path, {.threads = 1});
  auto s = lm->start(8);
  CHECK(error_of([&] { s->eval(some_ids(3)); }).find("not finite") != std::string::npos);
  CHECK(s->position() == 0);
  unlink(path);
}
