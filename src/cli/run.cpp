// run: continue a prompt.
#include "src/base/error.h"
#include "src/base/mapping.h"
#include "src/cli/commands.h"
#include "src/cli/model_options.h"
#include "src/host/stdio.h"

#include <errno.h>
#include <unistd.h>

#include <cstring>

namespace tealight::cli {
namespace {

constexpr Option kOwnOptions[] = {
    {"prompt", "-p", "TEXT", "the prompt, instead of the second argument"},
    {"file", "-f", "FILE", "read the prompt from a file"},
    {"json", "", "", "print the answer at its end as one JSON object"},
};
constexpr auto kOptions = join(kOwnOptions, kModelOptions, kDraftOptions, kSamplingOptions);
constexpr CommandInfo kInfo = {
    "run", "MODEL (PROMPT | -p TEXT | -f FILE | -)", "continue a prompt and print the text as it comes",
    "The prompt is taken as it is: no chat template; special tokens written in it are recognized, and a BOS is put\n"
    "before it where the model wants one. '-' reads it from standard input. Defaults: --max-tokens 256,\n"
    "--temperature 0.8, --top-k 40, --top-p 0.95, --min-p 0.05.",
    kOptions};

std::string read_input() {
  std::string text;
  char chunk[16 << 10];
  while (true) {
    const ssize_t n = ::read(0, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(Code::file, "standard input: ", std::strerror(errno));
    if (n == 0) return text;
    text.append(chunk, size_t(n));
    if (text.size() > RequestLimits::max_line_bytes)
      fail(Code::request, "standard input: the prompt is longer than ", RequestLimits::max_line_bytes, " bytes");
  }
}

std::string read_prompt(const Args& args, size_t next) {
  const auto& words = args.positional();
  const auto prompt = args.text("prompt"), file = args.text("file");
  const size_t given = (words.size() - next) + bool(prompt) + bool(file);
  if (given == 0) fail(Code::usage, "run: no PROMPT given; it is the argument after MODEL, --prompt, --file, or - for standard input");
  if (given > 1) fail(Code::usage, "run: more than one prompt given; a prompt of several words needs quotes");
  if (file && *file != "-") return read_text_file(std::string(*file), RequestLimits::max_line_bytes);
  const std::string_view text = file ? *file : prompt ? *prompt : words[next];
  return text == "-" ? read_input() : std::string(text);
}

int run(const Args& args) {
  GenerateRequest request = terminal_defaults();
  request.max_tokens = 256;
  read_sampling_options(args, request);
  size_t next = 0;
  const std::string path = model_path(args, kInfo, next);
  request.prompt = read_prompt(args, next);
  const std::unique_ptr<Lm> lm = Lm::load(path, load_options(args));
  Generator generator(*lm);
  if (args.flag("json")) return write_all(1, answer_json(request, generator.generate(request), *lm) + "\n") ? 0 : 1;
  const GenerateResult result = generator.generate(request, [](std::string_view text) { return write_all(1, text); });
  return result.finish != Finish::cancelled && (result.text.ends_with('\n') || write_all(1, "\n")) ? 0 : 1;
}

}  // namespace

const Command run_command = {kInfo, run};

}  // namespace tealight::cli
