// tealight pack: one executable file from a runtime, a model, and what is known of requests beforehand.
#include <algorithm>
#include <ctime>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/cli/model_options.h"
#include "src/host/stdio.h"
#include "src/pack/writer.h"
#include "src/task/generate.h"

namespace tealight::cli {
namespace {

constexpr Option kOptions[] = {
    {"output", "-o", "FILE", "where to write; the file appears whole or not at all"},
    {"prefix", "", "FILE", "a text that prompts begin with, or a .json with {\"messages\": [...]}; may be given several times"},
    {"defaults", "", "JSON", "fields that are put under those of every request, or a file that holds them"},
    {"runtime", "", "FILE", "executable to put first, also for another architecture (default: this one)"},
    {"no-search", "", "", "leave out the coarse copy of the head, with which the likeliest tokens are found sooner"},
    {"verify", "", "", "check every byte: of the written file, or of FILE where nothing is to be written"},
    {"kv", "", "f16|f32|q8_0|q4_0", "type of the cache (default: f16 for quantized models, else f32)"},
    {"threads", "-t", "N", "threads that evaluate the prefixes"},
};
constexpr CommandInfo kInfo = {
    "pack", "MODEL -o FILE | --verify FILE", "Write a model and this program as one executable file.",
    "FILE runs as this program does and uses its own model where no MODEL is given; it is also a MODEL for every command.\n"
    "Weights, tokenizer, chat template, default request fields and evaluated prefixes lie in it ready to map.\n"
    "A prefix is evaluated once, now; requests whose prompts begin with its tokens continue from there.",
    kOptions};

constexpr size_t kMaxDefaults = 1 << 20, kMaxPrefix = 16 << 20;

// Writes "packing: 42 %" over itself on a terminal, once a while.
class Progress {
 public:
  explicit Progress(const char* what) : what_(what), terminal_(isatty(2)) {}
  ~Progress() {
    if (shown_) write_all(2, "\r\033[K");
  }
  void operator()(uint64_t done, uint64_t all) {
    timespec now;
    if (!terminal_ || clock_gettime(CLOCK_MONOTONIC, &now) != 0) return;
    const int64_t ms = int64_t(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
    if (!start_) start_ = ms;
    if (ms - std::max(last_, start_) < 200) return;
    last_ = ms;
    shown_ = write_all(2, cat("\r", what_, ": ", done * 100 / std::max<uint64_t>(all, 1), " %"));
  }

 private:
  const char* what_;
  bool terminal_, shown_ = false;
  int64_t start_ = 0, last_ = 0;
};

void verify(const std::string& path) {
  const auto file = PackFile::open(path);
  if (!file) fail(Code::format, path, ": not a packed file");
  Progress progress("verifying");
  uint64_t bytes = 0;
  for (const pack::Section& s : file->sections()) bytes = s.offset + s.bytes;
  file->verify([&](uint64_t done) { progress(done, bytes); });
}

std::string checked_defaults(std::string_view given) {
  const bool file = !given.starts_with('{');
  const std::string text = file ? read_text_file(std::string(given), kMaxDefaults) : std::string(given);
  return check_defaults(text, file ? std::string(given) : "--defaults");
}

void keep_common(std::vector<TokenId>& ids, const std::vector<TokenId>& other) {
  ids.resize(size_t(std::mismatch(ids.begin(), ids.end(), other.begin(), other.end()).first - ids.begin()));
}

// The tokens that a prompt begins with if it begins with the file's text, or messages: those at its end that may turn out otherwise
// as more text follows are left out.
std::vector<TokenId> prefix_tokens(Lm& lm, const std::string& path) {
  const std::string text = read_text_file(path, kMaxPrefix);
  Generator generator(lm);
  if (!path.ends_with(".json")) {
    const auto encode = [&](std::string_view more) {
      GenerateRequest q;
      q.prompt = text + std::string(more);
      return encode_request(lm, q);
    };
    std::vector<TokenId> ids = encode("");
    for (std::string_view more : {"a", " a", ".", "1", "\n", "\n\n", " ", "\xe4\xb8\xad"}) keep_common(ids, encode(more));
    return ids;
  }
  const JsonDoc doc = JsonDoc::parse(text, path);
  GenerateRequest q = parse_request(doc.root());
  if (!q.chat) fail(Code::request, path, ": expected {\"messages\": [...]}");
  std::vector<TokenId> ids;
  if (q.messages.find(R"("role":"user")") == q.messages.npos) {
    // Templates may refuse a conversation without a user.
    q.messages.back() = ',';
    const std::string base = q.messages;
    for (const char* word : {"a", "1", "\n"}) {
      q.messages = base + message_json("user", word) + "]";
      const std::vector<TokenId> with = encode_request(lm, q);
      if (ids.empty()) ids = with;
      else keep_common(ids, with);
    }
    return ids;
  }
  ids = encode_request(lm, q);           // with what invites an answer, which the next message replaces
  q.messages.back() = ',';
  q.messages += message_json("assistant", "a") + "," + message_json("user", "a") + "]";
  keep_common(ids, encode_request(lm, q));
  return ids;
}

void evaluate(Lm& lm, const std::string& path, PackOptions& o) {
  PackOptions::Prefix p;
  p.name = path.substr(path.rfind('/') + 1);
  p.ids = prefix_tokens(lm, path);
  if (p.ids.empty()) fail(Code::request, path, ": it has no tokens");
  if (p.ids.size() > lm.context_length()) fail(Code::request, path, ": ", p.ids.size(), " tokens are more than the context of ", lm.context_length());
  auto sequence = lm.start(p.ids.size());
  sequence->eval(p.ids);
  p.kv.resize(size_t(sequence->snapshot_bytes(p.ids.size())));
  if (p.kv.empty()) fail(Code::unsupported, path, ": the states of this model cannot be kept");
  sequence->save(0, p.ids.size(), p.kv.data());
  o.prefixes.push_back(std::move(p));
}

int run(const Args& args) {
  const auto& words = args.positional();
  if (words.size() > 1) fail(Code::usage, "pack: one MODEL or FILE is expected, got ", words.size());
  const auto output = args.text("output");
  if (!output) {
    if (!args.flag("verify")) fail(Code::usage, "pack: no output given; it is --output FILE");
    const std::string path = words.empty() ? own_executable() : std::string(words[0]);
    verify(path);
    log_line(cat(path, ": all sections are as they were written"));
    return 0;
  }
  PackOptions o;
  o.model = words.empty() ? default_model() : std::string(words[0]);
  if (o.model.empty()) fail(Code::usage, "pack: no MODEL given");
  o.output = *output;
  o.runtime = args.text("runtime").value_or(own_executable());
  if (auto defaults = args.text("defaults")) o.defaults = checked_defaults(*defaults);
  {
    LoadOptions options = load_options(args);
    options.keep_states = true;
    const std::unique_ptr<Lm> lm = Lm::load(o.model, options);
    o.kv = lm->kv_dtype();
    o.fingerprint = lm->state_fingerprint();
    if (lm->packed() && !args.text("defaults")) o.defaults = lm->default_fields();
    for (std::string_view path : args.all("prefix")) evaluate(*lm, std::string(path), o);
    if (!args.flag("no-search")) o.search = lm->head_search();
  }
  PackResult r;
  {
    Progress progress("packing");
    o.progress = [&](uint64_t done, uint64_t bytes) { progress(done, bytes); };
    r = write_pack(o);
  }
  if (args.flag("verify")) verify(o.output);
  log_line(cat(o.output, ": ", r.file_bytes, " bytes: runtime ", r.runtime_bytes, " (", r.machine, "), ", r.n_tensors, " tensors ", r.tensors_bytes, " (",
               r.n_interleaved, " in the x16 layout), tokenizer ", r.tokenizer_bytes, ", ", o.prefixes.size(), " prefixes ", r.kv_bytes, ", coarse head ", r.search_bytes));
  return 0;
}

}  // namespace

const Command pack_command = {kInfo, run};

}  // namespace tealight::cli
