#include <doctest/doctest.h>

#include <cstdio>

#include <sys/stat.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/io/hf.h"
#include "src/io/safetensors.h"
#include "tests/fixtures.h"

using namespace tealight;

namespace {

std::string refusal(const std::string& path) {
  try {
    HfCheckpoint::open(path);
  } catch (const Error& e) {
    return e.message.empty() ? "no message" : e.message;
  }
  return "";
}

// A folder of a test's own, with one tiny tensor.
struct Folder {
  std::string path = "/tmp/tealight_hf_" + std::to_string(::getpid());
  std::vector<std::string> files;
  Folder() {
    ::mkdir(path.c_str(), 0700);
    SafetensorsWriter w(file("model.safetensors"), {{"x", Dtype::u8, {1}}});
    w.write("x", 1);
    w.finish();
    put("config.json", "{\"model_type\":\"llama\",\"a\":Infinity}");
  }
  ~Folder() {
    for (const std::string& f : files) ::unlink(f.c_str());
    ::rmdir(path.c_str());
  }
  std::string file(const std::string& name) {
    files.push_back(path + "/" + name);
    return files.back();
  }
  void put(const std::string& name, const std::string& text) {
    FILE* f = std::fopen(file(name).c_str(), "wb");
    REQUIRE(f);
    std::fwrite(text.data(), 1, text.size(), f);
    std::fclose(f);
  }
};

}  // namespace

TEST_CASE("hf: a folder, with or without a slash, and a file in it") {
  std::string folder = fixture("formats/hf_hostile/base_valid");
  for (const std::string& path : {folder, folder + "/", folder + "/model.safetensors"}) {
    HfCheckpoint c = HfCheckpoint::open(path);
    CHECK(c.config["model_type"].is_string());
    CHECK(c.weights.all().size() > 1);
    CHECK(c.tokenizer_json_path.ends_with("tokenizer.json"));
    CHECK(c.chat_template == "");
    CHECK(!c.generation_config.root());
  }
  std::string sharded = fixture("models/llama_sharded");
  for (const std::string& path : {sharded, sharded + "/model.safetensors.index.json"}) {
    HfCheckpoint c = HfCheckpoint::open(path);
    CHECK(c.weights.files().size() > 1);
    CHECK(c.weights.find("model.embed_tokens.weight"));
  }
}

TEST_CASE("hf: hostile folders that concern the files are refused with the cause") {
  for (auto [name, cause] :
       {std::pair("index_path_traversal", "not a plain file name"), {"index_absolute_path", "not a plain file name"},
        {"index_missing_shard", "No such file"}, {"index_tensor_not_in_shard", "the tensor is not in"},
        {"index_not_json", "not valid JSON"}, {"index_value_number", "expected a string"},
        {"config_not_json", "config.json: not valid JSON"}, {"config_empty", "config.json: not valid JSON"},
        {"config_array", "config.json: expected an object, got an array"}, {"config_deep", "too deep"},
        {"weights_absent", "neither model.safetensors nor"}}) {
    std::string message = refusal(fixture(std::string("formats/hf_hostile/") + name));
    INFO(name, ": ", message);
    CHECK(message.find(cause) != message.npos);
  }
  CHECK(refusal("/nonexistent") != "");
}

TEST_CASE("hf: where the chat template comes from, and the limits of texts") {
  Folder f;
  CHECK(HfCheckpoint::open(f.path).chat_template == "");
  f.put("tokenizer_config.json", R"({"chat_template":null})");
  CHECK(HfCheckpoint::open(f.path).chat_template == "");
  f.put("tokenizer_config.json", R"({"chat_template":"A"})");
  CHECK(HfCheckpoint::open(f.path).chat_template == "A");
  f.put("tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}]})");
  CHECK(HfCheckpoint::open(f.path).chat_template == "D");
  f.put("tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"T"}]})");
  CHECK(HfCheckpoint::open(f.path).chat_template == "");
  f.put("tokenizer_config.json", R"({"chat_template":[{"name":"default"}]})");
  CHECK(refusal(f.path).find("chat_template: template: expected a string") != std::string::npos);
  f.put("tokenizer_config.json", R"({"chat_template":5})");
  CHECK(refusal(f.path).find("expected a string or a list") != std::string::npos);
  f.put("chat_template.jinja", "J");
  CHECK(HfCheckpoint::open(f.path).chat_template == "J");
  f.put("chat_template.jinja", std::string((1 << 20) + 1, ' '));
  CHECK(refusal(f.path).find("chat_template.jinja: 1048577 bytes, more than the limit") != std::string::npos);
  f.put("chat_template.jinja", "J");
  f.put("generation_config.json", R"({"eos_token_id":[1,2]})");
  CHECK(HfCheckpoint::open(f.path).generation_config["eos_token_id"].size() == 2);
  f.put("generation_config.json", "[]");
  CHECK(refusal(f.path).find("generation_config.json: expected an object") != std::string::npos);
}
