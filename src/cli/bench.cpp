// bench: how fast a model runs here, and what share of the memory's speed that is.
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/cli/commands.h"
#include "src/cli/model_options.h"
#include "src/host/stdio.h"

namespace tealight::cli {
namespace {

constexpr Option kOwnOptions[] = {
    {"prompt-tokens", "-p", "N", "tokens of the prompt (default 512; 0: not measured)"},
    {"gen-tokens", "-n", "N", "tokens generated one by one (default 128; 0: not measured)"},
    {"depth", "-d", "N", "tokens already in the context (default 0)"},
    {"repetitions", "-r", "N", "measurements of each kind; their median is given (default 5)"},
    {"text", "", "FILE", "tokens of this text, over again where it ends, instead of random ones: the best logits are found sooner in real text"},
    {"logits", "", "best|all", "what each generated token asks for: the most likely token, as greedy answers do, or all logits (default best)"},
    {"json", "", "", "print one JSON object"},
};
constexpr auto kOptions = join(kOwnOptions, kModelOptions);
constexpr CommandInfo kInfo = {
    "bench", "MODEL", "measure speed, start-up and memory",
    "The prompt is evaluated in one go, the generated tokens one by one; nothing is sampled. GB/s is the weights' size\n"
    "times the generated tokens a second, and its share is of the speed at which the threads read a large buffer. Weights\n"
    "that a lasting process would copy (--copy-weights) are copied before: then fewer bytes are read, and the share can pass 100 %.",
    kOptions};

double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
}

uint64_t read_all(const uint64_t* p, size_t n) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= n; i += 8)
    for (size_t j = 0; j < 8; j++) sums[j] += p[i + j];
  uint64_t sum = 0;
  for (uint64_t s : sums) sum += s;
  return sum;
}

// Bytes a second that `threads` threads read from a buffer far larger than the caches; the best of several passes.
double read_bandwidth(int threads) {
  constexpr size_t kWords = (size_t(256) << 20) / 8;
  const std::unique_ptr<uint64_t[]> buffer(new uint64_t[kWords]);
  const size_t share = kWords / size_t(threads);
  const auto each = [&](const auto& work) {
    std::vector<std::thread> pool;
    for (int t = 1; t < threads; t++) pool.emplace_back(work, buffer.get() + size_t(t) * share);
    work(buffer.get());
    for (std::thread& t : pool) t.join();
  };
  each([&](uint64_t* p) { std::fill(p, p + share, 1); });
  double best = 0;
  for (int pass = 0; pass < 8; pass++) {
    const double begin = seconds();
    each([&](uint64_t* p) {
      volatile uint64_t keep = read_all(p, share);
      (void)keep;
    });
    best = std::max(best, double(share * 8) * threads / (seconds() - begin));
  }
  return best;
}

struct Figures {
  int64_t prompt_tokens, gen_tokens, depth, repetitions;
  int best = 1;                        // logits wanted of a generated token; 0: all
  double load_seconds = 0, first_token_seconds = 0;
  std::vector<double> prompt_tps, gen_tps;
  double peak_rss_bytes = 0, read_bytes_per_second = 0;
  uint64_t weight_bytes = 0;
};

constexpr size_t kWarmUp = 12;         // tokens

// n tokens of a text; of an empty one, ids that differ and mean nothing.
std::vector<TokenId> some_ids(size_t n, const std::string& text, const Lm& lm) {
  std::vector<TokenId> ids;
  const TextPart part{text, false};
  if (!text.empty()) ids = encode_prompt(lm.tokenizer(), {&part, 1});
  const size_t known = ids.size();
  for (size_t i = known; i < n; i++) ids.push_back(known ? ids[i - known] : TokenId((i * 7919 + 17) % lm.vocab()));
  return ids;
}

void measure(Lm& lm, const std::string& text, Figures& f) {
  const size_t depth = size_t(f.depth), n_prompt = size_t(f.prompt_tokens), n_gen = size_t(f.gen_tokens);
  const std::vector<TokenId> ids = some_ids(std::max({depth + 1, n_prompt, n_gen}), text, lm);
  const std::unique_ptr<Sequence> sequence = lm.start(depth + std::max(n_prompt, n_gen) + kWarmUp);
  const auto evaluate = [&](size_t n) { sequence->eval(std::span(ids).first(n)); };
  const double begin = seconds();
  if (n_prompt) evaluate(n_prompt);
  else evaluate(1);
  f.first_token_seconds = f.load_seconds + seconds() - begin;
  // What a process that lives does between its tokens (see --copy-weights) is done before anything is measured.
  for (size_t i = 0; n_gen && i < kWarmUp; i++) sequence->eval_last({&ids[i % ids.size()], 1}, 1, f.best);
  lm.copy_weights_now();
  const auto back = [&] {
    if (depth > sequence->rewind(depth)) evaluate(depth);
  };
  sequence->rewind(0);
  back();
  for (int64_t r = 0; n_prompt && r < f.repetitions; r++) {
    const double start = seconds();
    evaluate(n_prompt);
    f.prompt_tps.push_back(double(n_prompt) / (seconds() - start));
    back();
  }
  for (int64_t r = 0; n_gen && r < f.repetitions; r++) {
    const double start = seconds();
    TokenId id = ids[depth];
    for (size_t i = 0; i < n_gen; i++) {
      const Logits l = sequence->eval_last({&id, 1}, 1, f.best);
      id = l.all.empty() ? l.best[0].id : ids[(i + 1) % ids.size()];
    }
    f.gen_tps.push_back(double(n_gen) / (seconds() - start));
    back();
  }
}

std::string to_json(const Figures& f, Lm& lm) {
  std::string out;
  JsonWriter w(out);
  const double gen = median(f.gen_tps), bytes = gen * double(f.weight_bytes);
  w.begin_object().field("model", lm.name()).field("architecture", lm.architecture());
  w.field("prompt_tokens", f.prompt_tokens).field("gen_tokens", f.gen_tokens).field("depth", f.depth).field("repetitions", f.repetitions);
  w.field("pp_tps", median(f.prompt_tps)).field("tg_tps", gen);
  w.field("weight_bytes", f.weight_bytes).field("tg_bytes_per_second", bytes);
  w.field("read_bytes_per_second", f.read_bytes_per_second);
  w.field("tg_bandwidth_share", f.read_bytes_per_second > 0 ? bytes / f.read_bytes_per_second : 0.0);
  w.field("load_ms", f.load_seconds * 1e3).field("first_token_ms", f.first_token_seconds * 1e3);
  w.field("peak_rss_bytes", uint64_t(f.peak_rss_bytes)).end_object();
  return out;
}

// A number with one decimal.
std::string tenths(double x) {
  const int64_t t = int64_t(x * 10 + 0.5);
  return cat(t / 10, ".", t % 10);
}

std::string to_text(const Figures& f, Lm& lm) {
  std::string out;
  const auto line = [&](std::string left, std::string_view right) {
    left.resize(20, ' ');
    out += cat(left, right, "\n");
  };
  const auto speed = [&](const std::vector<double>& tps) {
    return cat(tenths(median(tps)), " tok/s (", tenths(*std::min_element(tps.begin(), tps.end())), " to ",
               tenths(*std::max_element(tps.begin(), tps.end())), ")");
  };
  const double bytes = median(f.gen_tps) * double(f.weight_bytes);
  line("model", cat(lm.name(), ", ", lm.architecture(), ", ", tenths(double(f.weight_bytes) / 1e6), " MB read a token"));
  if (f.depth) line("depth", cat(f.depth, " tokens"));
  if (!f.prompt_tps.empty()) line(cat("prompt, ", f.prompt_tokens), speed(f.prompt_tps));
  if (!f.gen_tps.empty()) {
    line(cat("generate, ", f.gen_tokens), speed(f.gen_tps));
    line("weights read", cat(tenths(bytes / 1e9), " GB/s, ", tenths(100 * bytes / f.read_bytes_per_second), " % of ",
                             tenths(f.read_bytes_per_second / 1e9), " GB/s"));
  }
  line("load", cat(tenths(f.load_seconds * 1e3), " ms"));
  line("first token", cat(tenths(f.first_token_seconds * 1e3), " ms, loading included"));
  line("peak memory", cat(tenths(f.peak_rss_bytes / 1e6), " MB resident"));
  return out;
}

int run(const Args& args) {
  constexpr int64_t kMost = 1 << 24;
  Figures f{args.integer("prompt-tokens", 0, kMost).value_or(512), args.integer("gen-tokens", 0, kMost).value_or(128),
            args.integer("depth", 0, kMost).value_or(0), args.integer("repetitions", 1, 1000).value_or(5)};
  static constexpr std::string_view logits_words[] = {"best", "all"};
  if (auto w = args.word("logits", logits_words); w && *w == "all") f.best = 0;
  size_t next = 0;
  const std::string path = model_path(args, kInfo, next);
  if (next < args.positional().size()) fail(Code::usage, "bench: unexpected argument ", quoted(args.positional()[next]));
  const LoadOptions options = load_options(args);
  const double begin = seconds();
  const std::unique_ptr<Lm> lm = Lm::load(path, options);
  f.load_seconds = seconds() - begin;
  f.weight_bytes = lm->weight_bytes();
  const auto file = args.text("text");
  measure(*lm, file ? read_text_file(std::string(*file), 64 << 20) : std::string(), f);
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  f.peak_rss_bytes = double(usage.ru_maxrss) * 1024;
  f.read_bytes_per_second = read_bandwidth(options.threads > 0 ? options.threads : std::max(1, int(std::thread::hardware_concurrency())));
  return write_all(1, args.flag("json") ? to_json(f, *lm) + "\n" : to_text(f, *lm)) ? 0 : 1;
}

}  // namespace

const Command bench_command = {kInfo, run};

}  // namespace tealight::cli
