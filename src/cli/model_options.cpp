#include "src/cli/model_options.h"

#include <cstdlib>

#include "src/base/error.h"
#include "src/base/mapping.h"
#include "src/pack/pack_file.h"
#include "src/task/draft.h"

namespace tealight::cli {

std::string model_path(const Args& args, const CommandInfo& command, size_t& next) {
  if (auto path = args.text("model")) return std::string(*path);
  const bool word = next < args.positional().size();
  // A text is seldom the name of a file: where a model is there anyway, the first argument need not be one.
  if (std::string own = default_model(); !own.empty() && !(word && file_exists(std::string(args.positional()[next])))) return own;
  if (!word) fail(Code::usage, command.name, ": no MODEL given; it is the first argument, or --model");
  return std::string(args.positional()[next++]);
}

LoadOptions load_options(const Args& args) {
  static constexpr std::string_view kv_words[] = {"f16", "f32", "q8_0", "q4_0"}, activation_words[] = {"int8", "f32"}, switch_words[] = {"on", "off"};
  LoadOptions o;
  o.threads = int(args.integer("threads", 0, 1024).value_or(o.threads));
  o.batch = int(args.integer("batch", 1, 1 << 20).value_or(o.batch));
  o.ctx = int(args.integer("ctx", 0, 1 << 30).value_or(o.ctx));
  if (auto w = args.word("kv", kv_words)) {
    using enum LoadOptions::Kv;
    o.kv = *w == "f16" ? f16 : *w == "f32" ? f32 : *w == "q8_0" ? q8_0 : q4_0;
  }
  if (auto w = args.word("activations", activation_words))
    o.activations = *w == "int8" ? LoadOptions::Activations::int8 : LoadOptions::Activations::f32;
  if (auto w = args.word("copy-weights", switch_words)) o.copy_weights = *w == "on";
  if (auto path = args.text("model-draft")) o.draft_model = *path;
  o.max_drafts = int(args.integer("draft-max", 0, kMaxDrafts).value_or(o.max_drafts));
  const char* folder = std::getenv("TEALIGHT_CACHE");
  o.cache_dir = args.text("cache").value_or(folder ? folder : "");
  o.cache_bytes = uint64_t(args.integer("cache-size", 0, int64_t(1) << 40).value_or(1024)) << 20;
  return o;
}

void read_sampling_options(const Args& args, GenerateRequest& q) {
  SamplingOptions& s = q.sampling;
  if (auto n = args.integer("max-tokens", -1, RequestLimits::max_tokens)) {
    if (*n == 0) fail(Code::usage, "--max-tokens: 0 asks for no answer; give 1 or more, or -1");
    q.max_tokens = *n < 0 ? 0 : *n;
  }
  s.temperature = args.number("temperature", 0, 100).value_or(s.temperature);
  s.top_k = int(args.integer("top-k", 0, INT32_MAX).value_or(s.top_k));
  s.top_p = args.number("top-p", 0, 1).value_or(s.top_p);
  s.min_p = args.number("min-p", 0, 1).value_or(s.min_p);
  s.typical_p = args.number("typical-p", 0, 1).value_or(s.typical_p);
  s.repetition_penalty = args.number("repeat-penalty", 0.01, 100).value_or(s.repetition_penalty);
  s.frequency_penalty = args.number("frequency-penalty", -2, 2).value_or(s.frequency_penalty);
  s.presence_penalty = args.number("presence-penalty", -2, 2).value_or(s.presence_penalty);
  if (auto seed = args.integer("seed", INT64_MIN, INT64_MAX)) q.seed = uint64_t(*seed);
  if (auto stop = args.text("stop")) {
    if (stop->empty() || stop->size() > RequestLimits::max_stop_bytes)
      fail(Code::usage, "--stop: expected 1 to ", RequestLimits::max_stop_bytes, " bytes");
    q.stop.emplace_back(*stop);
  }
  q.min_tokens = args.integer("min-tokens", 0, RequestLimits::max_tokens).value_or(q.min_tokens);
  q.ignore_eos = args.flag("ignore-eos");
}

GenerateRequest terminal_defaults() {
  GenerateRequest q;
  q.sampling.temperature = 0.8;
  q.sampling.top_k = 40;
  q.sampling.top_p = 0.95;
  q.sampling.min_p = 0.05;
  return q;
}

}  // namespace tealight::cli
