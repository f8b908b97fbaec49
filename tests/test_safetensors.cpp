#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include <sys/stat.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/io/safetensors.h"
#include "tests/alloc_count.h"
#include "tests/fixtures.h"

using namespace tealight;

namespace {

// The message of the refusal; "" when the file was accepted. A refusal may not take a megabyte, or a small multiple of
// the JSON text.
std::string refusal(const auto& open, size_t text_bytes = 0) {
  uint64_t before = g_allocated_bytes;
  try {
    open();
  } catch (const Error& e) {
    CHECK(g_allocated_bytes - before < 1'000'000 + 40 * text_bytes);
    return e.message.empty() ? "no message" : e.message;
  }
  return "";
}

std::string file_of(std::string_view header, size_t data_bytes) {
  std::string s(8, '\0');
  uint64_t n = header.size();
  std::memcpy(s.data(), &n, 8);
  s += header;
  s.append(data_bytes, '\x01');
  return s;
}

std::string verdict(std::string_view header, size_t data_bytes) {
  return refusal([&] { Safetensors::parse(Mapping::from_bytes(file_of(header, data_bytes))); });
}

template <class T>
T at(const WeightView& w, size_t i) {
  T v;
  std::memcpy(&v, w.data + i * sizeof(T), sizeof v);
  return v;
}

// Element i as a double; NaN stands for "not a type that this test decodes".
double element(const WeightView& w, size_t i) {
  switch (w.dtype) {
    case Dtype::f32: return double(at<float>(w, i));
    case Dtype::f64: return at<double>(w, i);
    case Dtype::bf16: return double(std::bit_cast<float>(uint32_t(at<uint16_t>(w, i)) << 16));
    case Dtype::i8: return at<int8_t>(w, i);
    case Dtype::u8:
    case Dtype::boolean: return at<uint8_t>(w, i);
    case Dtype::i16: return at<int16_t>(w, i);
    case Dtype::u16: return at<uint16_t>(w, i);
    case Dtype::i32: return at<int32_t>(w, i);
    case Dtype::u32: return at<uint32_t>(w, i);
    case Dtype::i64: return double(at<int64_t>(w, i));
    case Dtype::u64: return double(at<uint64_t>(w, i));
    default: return NAN;
  }
}

}  // namespace

TEST_CASE("safetensors: every hostile file is refused with its cause") {
  std::string folder = fixture("formats/safetensors/hostile") + "/";
  JsonDoc expect = JsonDoc::parse(read_text_file(folder + "expect.json", 1 << 20), "expect.json");
  CHECK(expect["files"].size() > 40);
  for (auto [name, v] : expect["files"].members()) {
    std::string path = folder + std::string(name);
    std::string message = refusal([&] { Safetensors::open(path); }, Mapping::open(path)->size());
    INFO(name, ": ", message);
    if (v["must_refuse"].boolean("must_refuse")) CHECK(message != "");
  }
}

TEST_CASE("safetensors: valid files give names, types, shapes, metadata and values") {
  std::string folder = fixture("formats/safetensors/valid") + "/";
  JsonDoc expected = JsonDoc::parse(read_text_file(folder + "expected.json", 1 << 24), "expected.json", true);
  CHECK(expected.root().size() > 25);
  for (auto [file, v] : expected.root().members()) {
    INFO(file);
    Safetensors s = Safetensors::open(folder + std::string(file));
    CHECK(s.weights.all().size() == v["tensors"].size());
    CHECK(s.metadata.size() == v["metadata"].size());
    for (const auto& [k, text] : s.metadata) CHECK(v["metadata"][k].string("metadata") == text);
    for (auto [name, t] : v["tensors"].members()) {
      INFO(name);
      const WeightView* w = s.weights.find(name);
      REQUIRE(w);
      CHECK(w->type_name == t["dtype"].string("dtype"));
      CHECK(w->rank == int(t["shape"].size()));
      for (size_t i = 0; i < t["shape"].size(); i++) CHECK(w->shape[i] == t["shape"][i].unsigned_integer("shape"));
      size_t i = 0;
      for (Json e : t["values"].elements()) {
        double got = element(*w, i++);
        if (!w->computable || std::isnan(got) || !e.is_number()) continue;
        CHECK(got == e.number("value"));
      }
      if (w->computable) CHECK(w->bytes == w->elements() * size_t(info(w->dtype).bytes));
    }
  }
}

TEST_CASE("safetensors: the verdicts of well-known odd headers") {
  // Accepted: plain, a scalar, no elements, nothing at all, data that begins at any byte, a space first, BOOL, F8_E5M2.
  CHECK(verdict(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8) == "");
  CHECK(verdict(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4) == "");
  CHECK(verdict(R"({"a":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]}})", 0) == "");
  CHECK(verdict("{}", 0) == "");
  CHECK(verdict("{}   ", 0) == "");
  CHECK(verdict(R"( {"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2) == "");
  CHECK(verdict(R"({"a":{"dtype":"F8_E5M2","shape":[3],"data_offsets":[0,3]}})", 3) == "");

  auto refused = [](std::string_view header, size_t bytes, std::string_view cause) {
    std::string message = verdict(header, bytes);
    INFO(header, " -> ", message);
    CHECK(message.find(cause) != message.npos);
  };
  refused(R"({"a":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})", 4, "need 4000000 bytes");
  refused(R"({"a":{"dtype":"F64","shape":[4],"data_offsets":[0,16]}})", 16, "need 32 bytes");
  refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6, "inside the tensor");
  refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9, "gap");
  refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5, "cover 4 of 5 bytes");
  refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4, "duplicate key \"a\"");
  refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4, "begin 4 is after end 0");
  refused(R"({"a":{"dtype":"U8","shape":[8589934592,8589934592],"data_offsets":[0,4]}})", 4, "overflows");
  refused(R"({"__metadata__":{"k":1}})", 0, "__metadata__");
  refused(R"({"__metadata__":{"k":"1","k":"2"}})", 0, "duplicate key \"k\"");
  refused(R"({"a":{"dtype":"F33","shape":[4],"data_offsets":[0,4]}})", 4, "unknown dtype \"F33\"");
  refused(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "need 1 bytes");
  refused(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1, "9 dimensions");

  for (uint64_t n : {uint64_t(1) << 62, uint64_t(1000)}) {
    std::string s = file_of("{}", 0);
    std::memcpy(s.data(), &n, 8);
    CHECK(refusal([&] { Safetensors::parse(Mapping::from_bytes(s)); }).find("header") != std::string::npos);
  }
}

TEST_CASE("safetensors: a file cut anywhere is refused, and no flipped header byte crashes") {
  const std::string whole(Mapping::open(fixture("formats/safetensors/valid/mixed_all.safetensors"))->text());
  for (size_t n = 0; n < whole.size(); n++)
    CHECK(refusal([&] { Safetensors::parse(Mapping::from_bytes(whole.substr(0, n))); }) != "");
  uint64_t header;
  std::memcpy(&header, whole.data(), 8);
  uint64_t sum = 0;
  for (size_t i = 0; i < 8 + header; i++)
    for (int bit = 0; bit < 8; bit++) {
      std::string s = whole;
      s[i] = char(s[i] ^ (1 << bit));
      refusal([&] {
        Safetensors parsed = Safetensors::parse(Mapping::from_bytes(s));
        for (const WeightView& w : parsed.weights.all())
          for (size_t k = 0; k < w.bytes; k++) sum += uint64_t(w.data[k]);
      });
    }
  CHECK(sum > 0);
}

TEST_CASE("safetensors: shards are one checkpoint; an index cannot point elsewhere") {
  std::string folder = fixture("models/llama_sharded");
  Safetensors s = Safetensors::open_index(folder + "/model.safetensors.index.json");
  CHECK(s.weights.files().size() > 1);
  CHECK(s.weights.find("model.embed_tokens.weight"));
  for (const WeightView& w : s.weights.all()) CHECK(w.data == s.weights.files()[w.file]->data() + w.offset);
  for (auto [name, cause] : {std::pair("index_path_traversal", "not a plain file name"), {"index_absolute_path", "not a plain file name"},
                             {"index_missing_shard", "No such file"}, {"index_tensor_not_in_shard", "the tensor is not in"},
                             {"index_not_json", "not valid JSON"}, {"index_value_number", "expected a string"}}) {
    std::string path = fixture(std::string("formats/hf_hostile/") + name) + "/model.safetensors.index.json";
    std::string message = refusal([&] { Safetensors::open_index(path); });
    INFO(name, ": ", message);
    CHECK(message.find(cause) != message.npos);
  }
}

TEST_CASE("safetensors: what the writer writes is read back; nothing is left of what it did not finish") {
  std::string path = "/tmp/tealight_test_" + std::to_string(::getpid()) + ".safetensors";
  const float a[6] = {1, 2, 3, 4, 5, 6};
  const int64_t b = -7;
  {
    SafetensorsWriter w(path, {{"a", Dtype::f32, {2, 3}}, {"b \"q\"", Dtype::i64, {}}, {"c", Dtype::f16, {0}}}, {{"k", "v"}});
    w.write(a, 8);
    w.write(a + 2, 16);
    w.write(&b, 8);
    CHECK(!file_exists(path));
    CHECK(file_exists(path + ".tmp"));
    w.finish();
  }
  CHECK(!file_exists(path + ".tmp"));
  Safetensors s = Safetensors::open(path);
  CHECK(s.metadata == std::vector<std::pair<std::string, std::string>>{{"k", "v"}});
  const WeightView* w = s.weights.find("a");
  REQUIRE(w);
  CHECK(w->offset % 8 == 0);
  CHECK(std::memcmp(w->data, a, sizeof a) == 0);
  CHECK(w->shape[1] == 3);
  CHECK(at<int64_t>(*s.weights.find("b \"q\""), 0) == -7);
  CHECK(s.weights.find("c")->bytes == 0);
  CHECK(!s.weights.find("d"));
  ::unlink(path.c_str());

  { SafetensorsWriter unfinished(path, {{"a", Dtype::f32, {2, 3}}}); }
  CHECK(!file_exists(path));
  CHECK(!file_exists(path + ".tmp"));
  CHECK_THROWS_AS(SafetensorsWriter("/nonexistent/x", {}), Error);
  ::mkdir(path.c_str(), 0700);   // the final name cannot be taken
  {
    SafetensorsWriter blocked(path, {});
    CHECK_THROWS_AS(blocked.finish(), Error);
  }
  CHECK(!file_exists(path + ".tmp"));
  ::rmdir(path.c_str());
}
