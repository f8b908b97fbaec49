// Packed files: the same bits as their source, whole tokenizers without a walk, prefixes, and what hostile or damaged ones do.
#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <vector>

#include "src/base/checked.h"
#include "src/base/json.h"
#include "src/pack/describe.h"
#include "src/pack/elf.h"
#include "src/task/lm.h"
#include "src/task/request.h"
#include "tests/fixtures.h"
#include "tests/packed.h"

using namespace tealight;

namespace {

const bool no_vocabularies = !have_fixture("vocab/index.json");

std::vector<TokenId> some_ids(size_t n) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < n; i++) ids.push_back(TokenId(5 + (i * 37 + i * i * 11) % 370));
  return ids;
}

uint64_t logits_hash(const std::string& path, LoadOptions options = {}) {
  options.threads = 1;
  auto lm = Lm::load(path, options);
  const std::vector<TokenId> ids = some_ids(20);
  auto sequence = lm->start(ids.size());
  Hasher hash;
  sequence->eval_all(ids, [](void* h, size_t, std::span<const float> l) { static_cast<Hasher*>(h)->update(l.data(), l.size_bytes()); }, &hash);
  return hash.digest();
}

std::string error_of(auto f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message;
  }
  return "";
}

std::string text_of(const std::string& path) { return std::string(Mapping::open(path)->text()); }

std::string open_error(std::string bytes) {
  return error_of([&] { PackFile::parse(Mapping::from_bytes(std::move(bytes))); });
}

bool names_section(const std::string& error) { return error.find(": section \"") != error.npos; }

pack::Section section_of(const std::string& file, std::string_view name) {
  const auto opened = PackFile::parse(Mapping::from_bytes(file));
  for (const pack::Section& s : opened->sections())
    if (s.title() == name) return s;
  return {};
}

constexpr const char* kTexts[] = {"", " ", "Hello world", "  The quick\tbrown fox\n\njumps over 12345 lazy dogs!", "na\xc3\xafve \xe2\x96\x81 caf\xc3\xa9 \xf0\x9f\x99\x82\xf0\x9f\x91\xa9",
                                  "<s>[INST] x </s> <|im_start|>user\n<|endoftext|>", "<0x41>\x01\x7f\xe4\xb8\xad\xe6\x96\x87", "don't I'LL we've -- ##ing"};

void check_same_tokenizer(const Tokenizer& a, const Tokenizer& b) {
  REQUIRE(a.size() == b.size());
  CHECK(a.end_tokens == b.end_tokens);
  CHECK(a.bos == b.bos);
  CHECK(a.eos == b.eos);
  CHECK(a.chat_template == b.chat_template);
  for (const char* text : kTexts)
    for (bool special : {false, true}) {
      const std::vector<TokenId> ids = a.encode(text, {true, special});
      CHECK(ids == b.encode(text, {true, special}));
      CHECK(a.decode(ids, false) == b.decode(ids, false));
    }
  const std::string run = std::string(3000, 'a') + " \xe2\x96\x81 b";   // long enough for a look at SentencePiece's marks
  CHECK(a.encode(run, {}) == b.encode(run, {}));
  for (TokenId id = 0; size_t(id) < a.size(); id += 7) {
    CHECK(a.piece(id) == b.piece(id));
    CHECK(a.find(a.piece(id)) == b.find(a.piece(id)));
    CHECK(a.is_special(id) == b.is_special(id));
  }
}

}  // namespace

TEST_CASE("packed weights give the bits of their source") {
  const TemporaryFolder folder;
  size_t interleaved = 0;
  for (const char* name : {"gguf/llama.Q4_0.gguf", "gguf/llama.Q8_0.gguf", "gguf/llama_k256.Q4_K_M.gguf", "gguf/qwen3.Q4_1.gguf", "gguf/llama.Q5_0.gguf",
                           "gguf/gpt2.Q5_1.gguf", "gguf/llama.IQ4_NL.gguf", "gguf/mixtral.Q4_0.gguf", "gguf/qwen3_moe.Q4_0.gguf", "gguf/qwen2_moe.Q8_0.gguf", "gguf/phi3.Q4_0.gguf",
                           "gguf/falcon_new.Q8_0.gguf", "gguf/gemma3_text.Q4_0.gguf", "gguf/llama_bias_tied.Q8_0.gguf", "gguf/stablelm.Q8_0.gguf", "gguf/granite.F32.gguf",
                           "gguf/llama_split-00001-of-00003.gguf", "models/llama_bf16", "models/llama_sharded", "models/llama_bias_tied", "models/qwen3_moe", "models/gpt2"}) {
    CAPTURE(std::string(name));
    const std::string model = fixture(name);
    PackOptions o;
    o.kv = Lm::load(model, {})->kv_dtype();
    const std::string file = packed(folder, model, o);
    CHECK(logits_hash(file) == logits_hash(model));
    LoadOptions f32;
    f32.activations = LoadOptions::Activations::f32;
    f32.kv = LoadOptions::Kv::f32;
    CHECK(logits_hash(file, f32) == logits_hash(model, f32));
    const auto opened = PackFile::open(file);
    for (const WeightView& t : opened->weights().all()) interleaved += t.interleaved;
    opened->verify();
  }
  CHECK(interleaved > 100);
}

TEST_CASE("packing is repeatable, and a packed file packs into itself") {
  const TemporaryFolder folder;
  for (const char* name : {"gguf/llama.Q4_0.gguf", "models/llama_sharded"}) {
    CAPTURE(std::string(name));
    PackOptions o;
    o.defaults = R"({"temperature":0.5})";
    const std::string first = text_of(packed(folder, fixture(name), o));
    CHECK(first == text_of(packed(folder, fixture(name), o)));
    o.output = folder.file("again");
    o.runtime = folder.file("packed");   // of a packed runtime, the executable alone is taken
    CHECK(first == text_of(packed(folder, folder.file("packed"), o)));
    struct stat st;
    REQUIRE(stat(o.output.c_str(), &st) == 0);
    CHECK((st.st_mode & 0777) == 0755);
    CHECK(PackFile::open(o.output)->defaults() == o.defaults);
  }
}

TEST_CASE("tokenizers with prepared tables are the same") {
  const TemporaryFolder folder;
  for (const char* name : {"gguf/llama.Q4_0.gguf", "gguf/gemma.Q8_0.gguf", "gguf/qwen2.Q8_0.gguf", "models/llama_sharded"}) {
    CAPTURE(std::string(name));
    const std::string model = fixture(name), file = packed(folder, model);
    check_same_tokenizer(Lm::load(model, {})->tokenizer(), Lm::load(file, {})->tokenizer());
  }
}

TEST_CASE("tables of real vocabularies" * doctest::skip(no_vocabularies)) {
  for (const char* name : {"bert-bge", "deepseek-coder", "falcon", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2", "starcoder"}) {
    CAPTURE(std::string(name));
    const auto gguf = std::make_shared<const Gguf>(Gguf::open(fixture(cat("vocab/ggml-vocab-", name, ".gguf"))));
    const auto plain = Tokenizer::from_gguf(gguf);
    const auto made = make_tables(*plain);
    const auto ready = Tokenizer::from_gguf(gguf, &made->tables);
    check_same_tokenizer(*plain, *ready);
    const std::string text = text_of(fixture(cat("vocab/ggml-vocab-", name, ".gguf.inp")));
    CHECK(plain->encode(text, {}) == ready->encode(text, {}));
  }
}

TEST_CASE("a restored prefix gives the bits of a recomputed one") {
  const TemporaryFolder folder;
  for (const char* name : {"gguf/llama.Q4_0.gguf", "gguf/gemma3_text.Q4_0.gguf", "models/llama_sharded"}) {
    CAPTURE(std::string(name));
    const std::string model = fixture(name);
    PackOptions o;
    {
      auto lm = Lm::load(model, {});
      o.kv = lm->kv_dtype();
      o.fingerprint = lm->state_fingerprint();
      for (size_t n : {size_t(5), size_t(37)}) {
        auto sequence = lm->start(64);
        sequence->eval(some_ids(n));
        std::vector<std::byte> kv(size_t(sequence->snapshot_bytes(n)));
        sequence->save(0, n, kv.data());
        o.prefixes.push_back({cat("prefix ", n), some_ids(n), std::move(kv)});
      }
    }
    auto plain = Lm::load(model, {}), lm = Lm::load(packed(folder, model, o), {});
    REQUIRE(lm->prefixes().size() == 2);
    const std::vector<TokenId> all = some_ids(50);
    for (const StateSnapshot& prefix : lm->prefixes()) {
      CHECK(prefix.in_place);
      CHECK(reinterpret_cast<uintptr_t>(prefix.state.data()) % 64 == 0);
      auto recomputed = plain->start(64), restored = lm->start(64);
      recomputed->eval(std::span(all).first(prefix.ids.size()));
      restored->restore(prefix);
      CHECK(restored->position() == prefix.ids.size());
      const auto rest = std::span(all).subspan(prefix.ids.size());
      const std::span<const float> a = recomputed->eval(rest), b = restored->eval(rest);
      CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) { return !std::memcmp(&x, &y, 4); }));
    }
    PackFile::open(folder.file("packed"))->verify();     // the private pages never reach the file
    LoadOptions other;
    other.kv = o.kv == Dtype::f16 ? LoadOptions::Kv::f32 : LoadOptions::Kv::f16;
    CHECK(Lm::load(folder.file("packed"), other)->prefixes().empty());
  }
}

TEST_CASE("a packed file that is cut off is refused by the section's name") {
  const TemporaryFolder folder;
  const std::string file = text_of(packed(folder, fixture("gguf/llama.Q4_0.gguf")));
  const pack::Section tensors = section_of(file, "tensors"), tokenizer = section_of(file, "tokenizer"), directory = section_of(file, "directory");
  const auto try_size = [&](size_t n) {
    const std::string error = open_error(file.substr(0, n));
    REQUIRE_MESSAGE(!error.empty(), n);
    // Whatever of it is a whole executable says where it was cut.
    if (n >= fake_runtime().size() + 4096 + sizeof(pack::Head)) REQUIRE_MESSAGE(names_section(error), n << ": " << error);
    return error;
  };
  for (size_t n = size_t(directory.offset) - 100; n < file.size(); n++) try_size(n);
  for (size_t n = 0; n < file.size(); n += 997) try_size(n);
  CHECK(try_size(size_t(tensors.offset) + 5).find("section \"tensors\"") != std::string::npos);
  CHECK(try_size(size_t(tokenizer.offset + tokenizer.bytes) - 1).find("section \"tokenizer\"") != std::string::npos);
  CHECK(try_size(file.size() - 1).find("section \"table\"") != std::string::npos);
  // By its path too, and what is no packed file is somebody else's.
  const std::string path = folder.write("cut", file.substr(0, size_t(tensors.offset) + 5));
  CHECK(names_section(error_of([&] { Lm::load(path, {}); })));
  CHECK(names_section(open_error(file + "x")));
  CHECK(!PackFile::open(folder.write("runtime", fake_runtime())));
  CHECK(!PackFile::open(fixture("gguf/llama.Q4_0.gguf")));
  CHECK(!PackFile::open(folder.path));
  CHECK(!PackFile::open(folder.file("nothing")));
  CHECK(error_of([&] { Lm::load(folder.file("runtime"), {}); }).find("executable without packed weights") != std::string::npos);
}

TEST_CASE("an altered byte is found, by open() or by verify()") {
  const TemporaryFolder folder;
  PackOptions o;
  o.defaults = R"({"temperature":0.5})";
  o.prefixes.push_back({"p", {1, 2, 3}, std::vector<std::byte>(3000, std::byte(7))});
  std::string file = text_of(packed(folder, fixture("gguf/llama.Q4_0.gguf"), o));
  const auto flipped = [&](size_t at, auto f) {
    file[at] = char(file[at] ^ 0x10);
    const std::string error = error_of([&] { f(PackFile::parse(Mapping::from_bytes(file))); });
    file[at] = char(file[at] ^ 0x10);
    return error;
  };
  const auto nothing = [](const auto&) {};
  for (const char* name : {"metadata", "template", "defaults", "directory"}) {
    const pack::Section s = section_of(file, name);
    for (uint64_t i = 0; i < s.bytes; i += std::max<uint64_t>(1, s.bytes / 200)) {
      const std::string error = flipped(size_t(s.offset + i), nothing);
      REQUIRE_MESSAGE(error.find(cat("section \"", name, "\"")) != error.npos, error);
    }
  }
  const pack::Section directory = section_of(file, "directory");
  for (size_t at = size_t(align_up(directory.offset + directory.bytes, 64)); at < file.size(); at++) {
    const std::string error = flipped(at, nothing);
    REQUIRE_MESSAGE(!error.empty(), at);
  }
  for (const char* name : {"runtime", "head", "tensors", "kv.0", "tokenizer"}) {
    const pack::Section s = section_of(file, name);
    for (uint64_t i : {uint64_t(70), s.bytes / 2, s.bytes - 1}) {
      CHECK(flipped(size_t(s.offset + i), nothing).empty());
      const std::string error = flipped(size_t(s.offset + i), [](const auto& f) { f->verify(); });
      CHECK_MESSAGE(error.find(cat("section \"", name, "\"")) != error.npos, error);
    }
  }
  const pack::Section tensors = section_of(file, "tensors"), tokenizer = section_of(file, "tokenizer");
  CHECK(flipped(size_t(tensors.offset) - 5, [](const auto& f) { f->verify(); }).find("not zero") != std::string::npos);
  // The tokenizer is checked before it is used, unless that is put off.
  file[size_t(tokenizer.offset) + 99] ^= 1;
  const std::string path = folder.write("altered", file);
  CHECK(error_of([&] { Lm::load(path, {}); }).find("section \"tokenizer\"") != std::string::npos);
  LoadOptions later;
  later.defer_checks = true;
  auto lm = Lm::load(path, later);
  CHECK(error_of([&] { lm->finish_checks(); }).find("section \"tokenizer\"") != std::string::npos);
}

TEST_CASE("hostile tables with right checksums") {
  const TemporaryFolder folder;
  PackOptions o;
  o.prefixes.push_back({"p", {1, 2, 3}, std::vector<std::byte>(100, std::byte(7))});
  const std::string good = text_of(packed(folder, fixture("gguf/gemma.Q8_0.gguf"), o));
  const size_t begin = size_t(section_of(good, "tokenizer").offset);
  uint64_t state = 12345;
  const auto random = [&](size_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return size_t(state >> 33) % n;
  };
  size_t opened = 0, refused = 0;
  for (int round = 0; round < 3000; round++) {
    std::string file = good;
    for (size_t i = 0, n = 1 + random(3); i < n; i++) {
      // Near the end lie directory and table.
      const size_t at = random(2) ? begin + random(file.size() - begin) : file.size() - 1 - random(std::min<size_t>(8000, file.size() - begin));
      static constexpr unsigned char kValues[] = {0, 1, 0x7f, 0x80, 0xff};
      file[at] = random(2) ? char(kValues[random(5)]) : char(file[at] ^ (1 << random(8)));
    }
    reseal(file);
    const std::string error = error_of([&] {
      const auto f = PackFile::parse(Mapping::from_bytes(std::move(file)));
      f->prefixes();
      const auto t = Tokenizer::from_gguf(f->gguf(), &f->tables());
      t->decode(t->encode(kTexts[random(std::size(kTexts))], {true, true}), false);
    });
    (error.empty() ? opened : refused)++;
  }
  CHECK(opened > 100);
  CHECK(refused > 100);
}

TEST_CASE("the runtime may be of another machine, and must be one") {
  const TemporaryFolder folder;
  PackOptions o;
  o.runtime = folder.write("arm", fake_runtime(183));
  o.output = folder.file("packed");
  o.model = fixture("gguf/llama.Q4_0.gguf");
  CHECK(write_pack(o).machine == "aarch64");
  CHECK(logits_hash(o.output) == logits_hash(o.model));
  CHECK(describe_pack(*PackFile::open(o.output), false).find("runtime for aarch64") != std::string::npos);
  const JsonDoc json = JsonDoc::parse(describe_pack(*PackFile::open(o.output), true), "json");
  CHECK(json["runtime"].string("runtime") == "aarch64");
  CHECK(json["sections"].size() == 8);
  std::string riscv = fake_runtime(243), cut = fake_runtime();
  cut.resize(1000);
  for (const std::string& bytes : {riscv, cut, std::string("#!/bin/sh\n"), std::string()}) {
    o.runtime = folder.write("bad", bytes);
    CHECK(error_of([&] { write_pack(o); }).find(o.runtime) != std::string::npos);
  }
  o.runtime = folder.file("none");
  CHECK(error_of([&] { write_pack(o); }).find(o.runtime) != std::string::npos);
}

TEST_CASE("a full disk leaves nothing behind") {
  const TemporaryFolder folder;
  PackOptions o;
  o.runtime = folder.write("runtime", fake_runtime());
  o.output = folder.file("packed");
  o.model = fixture("gguf/llama.Q4_0.gguf");
  struct rlimit before, small;
  getrlimit(RLIMIT_FSIZE, &before);
  small = before;
  small.rlim_cur = 100'000;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of([&] { write_pack(o); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(error.find("packed") != std::string::npos);
  CHECK(!file_exists(o.output));
  CHECK(!file_exists(o.output + ".tmp"));
}

TEST_CASE("default fields lie under a request's") {
  const std::string defaults = check_defaults(R"({"temperature": 0.25, "max_completion_tokens": 7, "stop": ["x"]})", "d");
  const auto merged = [&](const char* request) { return parse_request(with_defaults(defaults, JsonDoc::parse(request, "r").root()).root()); };
  CHECK(merged(R"({"prompt":"a"})").sampling.temperature == 0.25);
  CHECK(merged(R"({"prompt":"a"})").max_tokens == 7);
  CHECK(merged(R"({"prompt":"a","max_tokens":3})").max_tokens == 3);
  CHECK(merged(R"({"prompt":"a","temperature":1,"stop":null})").sampling.temperature == 1);
  CHECK(merged(R"({"prompt":"a","stop":null})").stop.empty());
  CHECK(error_of([&] { merged("[1]"); }).find("object") != std::string::npos);
  for (auto [text, part] : {std::pair{R"([])", "object"}, {R"({"temperature":"hot"})", "temperature"}, {R"({"prompt":"x"})", "prompt"}, {R"({"nope":1})", "nope"},
                            {R"({)", "JSON"}, {R"({"messages":[]})", "messages"}})
    CHECK(error_of([&] { check_defaults(text, "d"); }).find(part) != std::string::npos);
}
