// tealight logits: the logits of every position, into a file or as a hash of their bits.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/hash.h"
#include "src/cli/commands.h"
#include "src/cli/model_options.h"
#include "src/host/stdio.h"
#include "src/io/safetensors.h"
#include "src/task/lm.h"

namespace tealight::cli {
namespace {

constexpr Option kOwnOptions[] = {
    {"ids", "", "1,2,3", "token ids to evaluate, instead of a text"},
    {"output", "-o", "FILE", "write a safetensors file with the f32 tensor `logits` [T, vocab]"},
    {"hash", "", "", "print a hash (XXH3, 64 bits) of the logits' bits"},
    {"perplexity", "", "N", "of the text in windows of N tokens, each evaluated alone, the second half of each counted"},
    {"json", "", "", "print facts as JSON"},
};

constexpr auto kOptions = join(kOwnOptions, kModelOptions);
constexpr CommandInfo kInfo = {"logits", "MODEL (--ids 1,2,3 | TEXT)", "Evaluate tokens and keep the logits of every position.",
                               "Without --output and --hash the best five tokens after the last position are listed.", kOptions};

std::vector<TokenId> parse_ids(std::string_view text) {
  std::vector<TokenId> ids;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    std::string_view word = text.substr(at, end - at);
    while (word.starts_with(' ')) word.remove_prefix(1);
    TokenId id = 0;
    auto [p, e] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (e != std::errc() || p != word.data() + word.size()) fail(Code::usage, "logits: --ids: ", quoted(word), " is not a token id");
    ids.push_back(id);
    at = end + 1;
  }
  return ids;
}

struct Output {
  std::unique_ptr<SafetensorsWriter> file;
  Hasher hash;
  std::vector<std::pair<float, TokenId>> best;       // after the last position
  size_t last = 0;
};

void take(void* context, size_t position, std::span<const float> logits) {
  auto& out = *static_cast<Output*>(context);
  if (out.file) out.file->write(logits.data(), logits.size_bytes());
  out.hash.update(logits.data(), logits.size_bytes());
  if (position != out.last) return;
  for (size_t i = 0; i < logits.size(); i++) {
    if (out.best.size() == 5 && logits[i] <= out.best.back().first) continue;
    if (out.best.size() == 5) out.best.pop_back();
    auto at = out.best.begin();
    while (at != out.best.end() && at->first >= logits[i]) ++at;
    out.best.insert(at, {logits[i], TokenId(i)});
  }
}

struct Likelihood {
  std::span<const TokenId> ids;      // of the window
  double nats = 0;                   // -log p of the tokens counted so far
  uint64_t counted = 0;
};

// Position i says how likely token i + 1 was: log-softmax in double.
void count_next(void* context, size_t position, std::span<const float> logits) {
  auto& l = *static_cast<Likelihood*>(context);
  if (position < l.ids.size() / 2 || position + 1 == l.ids.size()) return;
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits) sum += std::exp(double(x) - most);
  l.nats += most + std::log(sum) - double(logits[size_t(l.ids[position + 1])]);
  l.counted++;
}

// As llama-perplexity does it: a last piece shorter than a window is left out, and BOS, where the model wants it, replaces the first
// token of every window.
std::string perplexity(Lm& lm, std::vector<TokenId> ids, size_t window, bool json) {
  if (ids.size() < window) fail(Code::usage, "logits: --perplexity: the text has ", ids.size(), " tokens, expected at least ", window);
  const Tokenizer& tokenizer = lm.tokenizer();
  Likelihood all;
  const auto sequence = lm.start(window);
  for (size_t at = 0; at + window <= ids.size(); at += window) {
    if (tokenizer.adds_bos && tokenizer.bos) ids[at] = *tokenizer.bos;
    all.ids = std::span(ids).subspan(at, window);
    sequence->rewind(0);
    sequence->eval_all(all.ids, count_next, &all);
  }
  const double value = std::exp(all.nats / double(all.counted));
  std::string text;
  if (!json) return cat(value, " (", all.counted, " tokens counted)\n");
  JsonWriter(text).begin_object().field("perplexity", value).field("counted", all.counted).field("tokens", uint64_t(ids.size())).end_object();
  return text + "\n";
}

int run(const Args& args) {
  size_t next = 0;
  const std::string path = model_path(args, kInfo, next);
  const std::span<const std::string_view> rest = std::span(args.positional()).subspan(next);
  if (args.text("ids") ? !rest.empty() : rest.size() != 1) fail(Code::usage, "logits: give either a text or --ids");
  auto lm = Lm::load(path, load_options(args));
  std::vector<TokenId> ids;
  if (auto list = args.text("ids")) {
    ids = parse_ids(*list);
  } else {
    ids = lm->tokenizer().encode(rest[0], {.add_special = true, .parse_special = true});
  }
  if (ids.empty()) fail(Code::usage, "logits: the text has no tokens");
  if (auto window = args.integer("perplexity", 4, 1 << 20))
    return write_all(1, perplexity(*lm, std::move(ids), size_t(*window), args.flag("json"))) ? 0 : 1;
  Output out;
  if (auto file = args.text("output"))
    out.file = std::make_unique<SafetensorsWriter>(
        std::string(*file), std::vector<SafetensorsWriter::Declared>{{"logits", Dtype::f32, {ids.size(), lm->vocab()}}});
  auto sequence = lm->start(ids.size());
  out.last = ids.size() - 1;
  sequence->eval_all(ids, take, &out);
  if (out.file) out.file->finish();

  std::string text;
  if (args.flag("json")) {
    JsonWriter w(text);
    w.begin_object().field("tokens", uint64_t(ids.size())).field("vocab", uint64_t(lm->vocab())).field("hash", hex64(out.hash.digest()));
    w.key("best").begin_array();
    for (auto [value, id] : out.best) w.begin_object().field("id", id).field("logit", double(value)).end_object();
    w.end_array().end_object();
    text += '\n';
  } else if (args.flag("hash")) {
    text = hex64(out.hash.digest()) + "\n";
  } else if (!out.file) {
    for (auto [value, id] : out.best) text += cat(id, "\t", double(value), "\n");
  }
  return write_all(1, text) ? 0 : 1;
}

}  // namespace

const Command logits_command = {kInfo, run};

}  // namespace tealight::cli
