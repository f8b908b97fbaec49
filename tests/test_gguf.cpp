#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/io/describe.h"
#include "src/io/gguf.h"
#include "src/io/gguf_writer.h"
#include "tests/alloc_count.h"
#include "tests/fixtures.h"

using namespace tealight;

namespace {

// The message of the refusal; "" when the file was accepted. A refusal may not take a megabyte.
std::string refusal(const auto& open) {
  uint64_t before = g_allocated_bytes;
  try {
    open();
  } catch (const Error& e) {
    CHECK(g_allocated_bytes - before < 1'000'000);
    return e.message.empty() ? "no message" : e.message;
  }
  return "";
}
std::string verdict(const std::string& bytes) {
  return refusal([&] { Gguf::parse(Mapping::from_bytes(bytes)); });
}
void check_refused(const std::string& bytes, std::string_view cause) {
  std::string message = verdict(bytes);
  INFO(cause, " -> ", message);
  CHECK(message.find(cause) != message.npos);
}

// GGUF written by hand, so that it can be wrong.
struct Raw {
  std::string s;
  template <class T>
  Raw& n(T v) {
    s.append(reinterpret_cast<const char*>(&v), sizeof v);
    return *this;
  }
  Raw& u32(uint32_t v) { return n(v); }
  Raw& u64(uint64_t v) { return n(v); }
  Raw& str(std::string_view v) {
    u64(v.size());
    s += v;
    return *this;
  }
  Raw& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    str(name).u32(uint32_t(dims.size()));
    for (uint64_t d : dims) u64(d);
    return u32(type).u64(offset);
  }
  std::string with_data(size_t bytes, size_t alignment = 32) const {
    std::string out = s;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + std::string(bytes, '\x02');
  }
};
Raw head(uint64_t tensors, uint64_t pairs, uint32_t version = 3) {
  Raw r;
  r.s = "GGUF";
  return r.u32(version).u64(tensors).u64(pairs);
}
constexpr uint32_t kU8 = 0, kU32 = 4, kString = 8, kArray = 9;

std::string small_valid() {
  GgufWriter w;
  w.set("general.architecture", "llama");
  w.set("a.count", uint32_t(7));
  w.set("a.negative", int32_t(-7));
  w.set("a.big", uint64_t(1) << 40);
  w.set("a.eps", 1e-5f);
  w.set("a.yes", true);
  std::vector<std::string> words = {"a", "", "ccc"};
  std::vector<float> scores = {0.5f, -1, 2};
  std::vector<int32_t> types = {1, 2, 3};
  w.set("t.words", std::span<const std::string>(words));
  w.set("t.scores", std::span<const float>(scores));
  w.set("t.types", std::span<const int32_t>(types));
  static const float data[64] = {1, 2, 3, 4};
  static const uint8_t blocks[36] = {9};
  w.tensor("x", Dtype::f32, std::array<uint64_t, 2>{3, 4}, data);
  w.tensor("y", Dtype::q4_0, std::array<uint64_t, 2>{2, 32}, blocks);
  w.tensor("z", Dtype::f32, std::array<uint64_t, 1>{1}, data + 1);
  return w.bytes();
}

// Reads everything that a reader of metadata could ask for, so that a sanitizer sees a wrong view.
uint64_t touch_all(const Gguf& g) {
  uint64_t sum = 0;
  for (const auto& [key, v] : g.metadata()) {
    for (size_t i = 0; i < v.bytes; i++) sum += uint64_t(v.data[i]);
    for (auto f : {std::function<void()>([&] { g.uints(key); }), {[&] { g.numbers(key); }}, {[&] { g.strings(key); }},
                   {[&] { g.string(key); }}, {[&] { g.boolean(key); }}, {[&] { g.uint(key); }}, {[&] { g.number(key); }}}) {
      try {
        f();
      } catch (const Error&) {
        sum++;
      }
    }
  }
  for (const WeightView& w : g.weights().all()) {
    sum += uint64_t(w.data[0]) + uint64_t(w.data[w.bytes - 1]);
    CHECK(g.weights().find(w.name) == &w);
  }
  return sum;
}

}  // namespace

TEST_CASE("gguf: every hostile file of the container level is refused with its cause") {
  std::string folder = fixture("formats/gguf_hostile") + "/";
  JsonDoc expect = JsonDoc::parse(read_text_file(folder + "expect.json", 1 << 20), "expect.json");
  int files = 0;
  for (auto [name, v] : expect["files"].members()) {
    if (v["level"].string("level") != "file") continue;
    std::string message = refusal([&] { Gguf::open(folder + std::string(name)); });
    INFO(name, ": ", message);
    if (v["must_refuse"].is_null()) CHECK(message == "");
    else if (v["must_refuse"].boolean("must_refuse")) CHECK(message != "");
    files++;
  }
  CHECK(files > 50);
}

TEST_CASE("gguf: refused with a message") {
  auto aligned = [](auto put) {
    Raw r = head(0, 1);
    r.str("general.alignment");
    put(r);
    return r.s;
  };
  check_refused(aligned([](Raw& r) { r.u32(kU32).u32(0); }), "general.alignment is 0");
  check_refused(aligned([](Raw& r) { r.u32(kU32).u32(3); }), "general.alignment is 3");
  check_refused(aligned([](Raw& r) { r.u32(kString).str("32"); }), "general.alignment is not an integer");

  auto one = [](std::vector<uint64_t> dims, uint32_t type = 0, uint64_t offset = 0) {
    return head(1, 0).tensor("t", dims, type, offset).with_data(256);
  };
  CHECK(verdict(one({4, 4})) == "");
  check_refused(one({uint64_t(1) << 62, 4}), "\"t\": more than 2^63 elements");
  check_refused(one({(uint64_t(1) << 63) - 1, 2}), "\"t\": more than 2^63 elements");
  check_refused(one({(uint64_t(1) << 62) + 1, 4}), "\"t\": more than 2^63 elements");
  check_refused(one({uint64_t(1) << 61}), "reach beyond the end");
  check_refused(one({uint64_t(1) << 62, 1}, 28), "\"t\": more than 2^64 bytes");
  check_refused(one({4, 0}), "\"t\": dimension 1 is 0");
  check_refused(one({1, 1, 1, 1, 1}), "\"t\": 5 dimensions");
  check_refused(head(1, 0).str("t").u32(UINT32_MAX).with_data(64), "\"t\": 4294967295 dimensions");
  check_refused(one({4, 4}, 0, 4), "\"t\": offset 4 is not a multiple of the alignment 32");
  check_refused(one({4, 4}, 99), "\"t\": unknown tensor type 99");
  check_refused(one({20}, 2), "\"t\": rows of 20 elements do not consist of whole Q4_0 blocks of 32");
  check_refused(head(0, 1).str("").u32(kU32).u32(1).s, "the key is empty");
  check_refused(head(2, 0).tensor("t", {4}, 0, 0).tensor("t", {4}, 0, 32).with_data(64), "tensor \"t\": the name is used twice");
  check_refused(head(2, 0).tensor("t", {9}, 0, 0).tensor("u", {4}, 0, 32).with_data(64), "shares bytes");

  Raw nested = head(0, 1);
  nested.str("k");
  for (int i = 0; i < 1000; i++) nested.u32(kArray);
  check_refused(nested.u32(kU8).s, "key \"k\": arrays of arrays");
  check_refused(head(0, 1).str("k").u32(kString).u64(uint64_t(1) << 63).s, "key \"k\": a string of 9223372036854775808 bytes");
  check_refused(head(0, 0, 0x03000000).s, "big-endian");
}

TEST_CASE("gguf: types that cannot be computed are accepted until they are used") {
  // IQ4_XS and MXFP4 load; 41 is known to the format only.
  Gguf g = Gguf::parse(Mapping::from_bytes(
      head(3, 0, 2).tensor("a", {256}, 23, 0).tensor("b", {32}, 39, 160).tensor("c", {128}, 41, 192).with_data(256)));
  CHECK(g.version() == 2);
  CHECK(g.weights().find("a")->dtype == Dtype::iq4_xs);
  CHECK(g.weights().find("b")->dtype == Dtype::mxfp4);
  const WeightView* c = g.weights().find("c");
  CHECK(!c->computable);
  CHECK(c->file_type == 41);
  CHECK(c->type_name == "Q1_0");
  CHECK(c->bytes == 18);
}

TEST_CASE("gguf: an array of another element type is told from the one that is wanted") {
  std::string bytes = head(0, 1).str("scores").u32(kArray).u32(kU8).u64(3).s + "abc";
  Gguf g = Gguf::parse(Mapping::from_bytes(bytes));
  CHECK(g.find("scores").type == GgufType::u8);
  CHECK(g.find("scores").bytes == 3);
  CHECK(refusal([&] { g.numbers("scores"); }) == "key \"scores\": expected an array of floats, got one of u8");
  CHECK(g.uints("scores")->at(2) == 'c');
  CHECK_THROWS_AS(g.strings("scores"), Error);
  CHECK_THROWS_AS(g.number("scores"), Error);
}

TEST_CASE("gguf: typed look-ups") {
  Gguf g = Gguf::parse(Mapping::from_bytes(small_valid()));
  CHECK(g.version() == 3);
  CHECK(g.metadata().size() == 9);
  CHECK(g.metadata()[0].key == "general.architecture");
  CHECK(g.string("general.architecture") == "llama");
  CHECK(g.uint("a.count") == 7);
  CHECK(g.uint("a.big") == uint64_t(1) << 40);
  CHECK(g.number("a.eps") == double(1e-5f));
  CHECK(g.number("a.negative") == -7);
  CHECK(g.boolean("a.yes") == true);
  CHECK(g.strings("t.words") == std::vector<std::string_view>{"a", "", "ccc"});
  CHECK(g.numbers("t.scores") == std::vector<double>{0.5, -1, 2});
  CHECK(g.uints("t.types") == std::vector<uint64_t>{1, 2, 3});
  CHECK(g.uints("a.count") == std::vector<uint64_t>{7});
  CHECK(!g.uint("absent"));
  CHECK(!g.strings("absent"));
  CHECK(!g.find("absent"));
  for (auto [key, cause] : {std::pair("a.negative", "-7 is negative"), {"t.words", "got an array"}, {"a.yes", "expected an integer"}})
    CHECK(refusal([&] { g.uint(key); }).find(cause) != std::string::npos);
  CHECK(refusal([&] { g.string("a.count"); }) == "key \"a.count\": expected a string");
  CHECK(refusal([&] { g.uints("t.scores"); }).find("expected integers") != std::string::npos);
}

TEST_CASE("gguf: the writer honours general.alignment; what it writes is read back") {
  float a[3] = {1, 2, 3}, b[5] = {4, 5, 6, 7, 8};
  for (uint32_t alignment : {0u, 8u, 32u, 64u, 4096u}) {
    GgufWriter w;
    if (alignment) w.set("general.alignment", alignment);
    w.tensor("a", Dtype::f32, std::array<uint64_t, 2>{1, 3}, a);
    w.tensor("b", Dtype::f32, std::array<uint64_t, 1>{5}, b);
    std::string path = "/tmp/tealight_test_" + std::to_string(::getpid()) + ".gguf";
    w.write(path);
    CHECK(Mapping::open(path)->text() == w.bytes());
    Gguf g = Gguf::open(path);
    ::unlink(path.c_str());
    CHECK(!file_exists(path + ".tmp"));
    CHECK(g.alignment() == (alignment ? alignment : 32));
    const WeightView *x = g.weights().find("a"), *y = g.weights().find("b");
    CHECK(x->offset % g.alignment() == 0);
    CHECK(y->offset % g.alignment() == 0);
    CHECK(std::memcmp(x->data, a, sizeof a) == 0);
    CHECK(std::memcmp(y->data, b, sizeof b) == 0);
    CHECK(x->rank == 2);
    CHECK(x->shape[0] == 1);
    CHECK(x->shape[1] == 3);
  }
}

TEST_CASE("gguf: a file cut anywhere is refused, and no flipped byte of its head crashes") {
  const std::string whole = small_valid();
  Gguf g = Gguf::parse(Mapping::from_bytes(whole));
  const WeightView& last = *g.weights().find("z");
  for (size_t n = 0; n < last.offset + last.bytes; n++) CHECK(verdict(whole.substr(0, n)) != "");
  uint64_t sum = 0, accepted = 0;
  for (size_t i = 0; i < g.weights().find("x")->offset; i++)
    for (int value = 0; value < 256; value += i < 24 ? 1 : 5) {
      std::string s = whole;
      s[i] = char(value);
      refusal([&] {
        Gguf changed = Gguf::parse(Mapping::from_bytes(s));
        sum += touch_all(changed);
        accepted++;
      });
    }
  CHECK(accepted > 1000);
  CHECK(sum > 0);
}

TEST_CASE("gguf: a split model is one model, whichever of its files is opened") {
  std::string first = fixture("gguf/llama_split-00001-of-00003.gguf");
  for (char c : {'1', '2', '3'}) {
    std::string path = first;
    path[path.rfind("1-of")] = c;
    Gguf g = Gguf::open(path);
    CHECK(g.weights().all().size() == 21);
    CHECK(g.weights().files().size() == 3);
    CHECK(g.string("general.architecture") == "llama");   // the metadata of the first
    touch_all(g);
    for (const WeightView& w : g.weights().all()) CHECK(w.data == g.weights().files()[w.file]->data() + w.offset);
  }
  CHECK(refusal([&] { Gguf::parse(Mapping::open(first)); }).find("split model") != std::string::npos);

  // Files that do not belong together.
  std::string folder = "/tmp/tealight_split_" + std::to_string(::getpid());
  ::mkdir(folder.c_str(), 0700);
  std::vector<std::string> written;
  auto put = [&](int i, uint32_t no, uint32_t count, uint32_t total, const char* tensor) {
    GgufWriter w;
    w.set("split.no", no);
    w.set("split.count", count);
    w.set("split.tensors.count", total);
    static const float data[4] = {};
    w.tensor(tensor, Dtype::f32, std::array<uint64_t, 1>{4}, data);
    written.push_back(folder + "/m-0000" + std::to_string(i) + "-of-00002.gguf");
    w.write(written.back());
  };
  auto message = [&] { return refusal([&] { Gguf::open(folder + "/m-00001-of-00002.gguf"); }); };
  put(1, 0, 2, 2, "a");
  CHECK(message().find("m-00002-of-00002.gguf: No such file") != std::string::npos);
  put(2, 1, 2, 2, "b");
  CHECK(message() == "");
  put(2, 0, 2, 2, "b");
  CHECK(message().find("split.no 0 of split.count 2; expected 1 of 2") != std::string::npos);
  put(2, 1, 3, 2, "b");
  CHECK(message().find("split.no 1 of split.count 3") != std::string::npos);
  put(2, 1, 2, 2, "a");
  CHECK(message().find("tensor \"a\": the name is used twice") != std::string::npos);
  put(1, 0, 2, 3, "a");
  put(2, 1, 2, 3, "b");
  CHECK(message().find("2 tensors; split.tensors.count says 3") != std::string::npos);
  put(1, 2, 2, 2, "a");
  CHECK(message().find("split.no is 2") != std::string::npos);
  put(1, 0, 5, 2, "a");
  CHECK(message().find("must end in -00001-of-00005.gguf") != std::string::npos);
  for (const std::string& f : written) ::unlink(f.c_str());
  ::rmdir(folder.c_str());
}

TEST_CASE("gguf: 260,000 tokens are walked once, without an allocation for each") {
  std::vector<std::string> words(262144);
  for (size_t i = 0; i < words.size(); i++) words[i] = "token" + std::to_string(i);
  std::vector<float> scores(words.size());
  GgufWriter w;
  w.set("tokenizer.ggml.tokens", std::span<const std::string>(words));
  w.set("tokenizer.ggml.scores", std::span<const float>(scores));
  static const float data[4] = {};
  for (int i = 0; i < 300; i++) w.tensor("blk." + std::to_string(i) + ".weight", Dtype::f32, std::array<uint64_t, 1>{4}, data);
  auto file = Mapping::from_bytes(w.bytes());
  double best_ms = 1e9;
  for (int i = 0; i < 5; i++) {
    uint64_t before = g_allocated_bytes;
    auto start = std::chrono::steady_clock::now();
    Gguf g = Gguf::parse(file);
    best_ms = std::min(best_ms, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    CHECK(g_allocated_bytes - before < 1'000'000);
    CHECK(g.strings("tokenizer.ggml.tokens")->at(262143) == "token262143");
  }
  MESSAGE("opened in ", best_ms, " ms");
  CHECK(best_ms < 20);   // 3 ms on a quiet machine; builds with sanitizers are slower
}

TEST_CASE("gguf: every file of the external fixtures opens" * doctest::skip(!have_fixture("vocab/ggml-vocab-llama-bpe.gguf"))) {
  const std::string vocabulary = fixture("vocab/ggml-vocab-llama-bpe.gguf");   // never in tests/data
  const std::string root = vocabulary.substr(0, vocabulary.find("vocab/"));
  int files = 0;
  for (std::string path : {root + "gguf/", root + "vocab/"}) {
    DIR* d = ::opendir(path.c_str());
    REQUIRE(d);
    while (const dirent* e = ::readdir(d))
      if (std::string name = e->d_name; name.ends_with(".gguf")) {
        INFO(name);
        Gguf g = Gguf::open(path + name);
        CHECK(g.string("general.architecture").value_or("") != "");
        touch_all(g);
        files++;
      }
    ::closedir(d);
  }
  CHECK(files > 100);
}

TEST_CASE("inspect: text and JSON of every format; hostile files never crash it") {
  std::string split = fixture("gguf/llama_split-00002-of-00003.gguf");
  std::string text = describe(split, false);
  CHECK(text.find("21 tensors, 110912 parameters") != text.npos);
  CHECK(text.find("tokenizer.ggml.tokens") != text.npos);
  JsonDoc d = JsonDoc::parse(describe(split, true), "inspect");
  CHECK(d["tensors"].size() == 21);
  CHECK(d["files"].size() == 3);
  CHECK(d["metadata"]["tokenizer.ggml.tokens"]["value"].size() == 384);
  CHECK(d["metadata"]["llama.attention.layer_norm_rms_epsilon"]["value"].number("eps") == 1e-5);
  CHECK(d["metadata"]["tokenizer.ggml.add_bos_token"]["value"].boolean("add_bos"));
  JsonDoc f = JsonDoc::parse(describe(fixture("models/llama_sharded"), true), "inspect");
  CHECK(f["config"]["model_type"].string("model_type") == "llama");
  CHECK(f["files"].size() > 1);
  CHECK(describe(fixture("models/llama_sharded"), false).find("model_type") != std::string::npos);
  CHECK(describe(fixture("models/llama_sharded/model.safetensors.index.json"), false).find("tensors") != std::string::npos);
  JsonDoc s = JsonDoc::parse(describe(fixture("formats/safetensors/valid/rank8.safetensors"), true), "inspect");
  CHECK(s["tensors"][0]["shape"].size() == 8);
  CHECK(refusal([&] { describe(fixture("formats/gguf_hostile/expect.json"), false); }).find("neither") != std::string::npos);

  for (std::string folder : {"formats/gguf_hostile/", "formats/safetensors/hostile/"}) {
    JsonDoc expect = JsonDoc::parse(read_text_file(fixture(folder + "expect.json"), 1 << 20), folder);
    for (auto [name, v] : expect["files"].members()) {
      std::string path = fixture(folder + std::string(name));
      if (path.empty()) continue;
      try {
        describe(path, false);
        JsonDoc::parse(describe(path, true), path);
      } catch (const Error& e) {
        CHECK(e.message != "");
      }
    }
  }
}
