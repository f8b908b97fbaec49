// tealight logits: the logits of every position, into a file or as a hash of their bits.
#include <charconv>
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
