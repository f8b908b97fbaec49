// main() of a person's function: which model, which host.
#include "include/tealight/function.h"

#include <cstdlib>
#include <cstring>
#include <exception>

#include "src/api/function_handler.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/host/lines.h"
#include "src/host/stdio.h"

namespace tealight {
namespace {

constexpr char kHelp[] =
    "usage: PROGRAM [MODEL] [--threads N] [--ctx N] [--sandbox off|on|require]\n\n"
    "A function around a model. MODEL (or TEALIGHT_MODEL) is a .gguf, a .safetensors beside its config.json, or a Hugging Face directory.\n"
    "Answers one request a line on standard input with a line on standard output.\n";

struct Arguments {
  std::string model;
  LoadOptions load;
  SandboxMode sandbox = SandboxMode::on;
  bool help = false;
};

int whole_number(std::string_view option, const char* text) {
  char* end = nullptr;
  const long v = std::strtol(text, &end, 10);
  if (end == text || *end || v < 0 || v > 1 << 30) fail(Code::usage, option, ": ", quoted(text), " is no whole number from 0 to ", 1 << 30);
  return int(v);
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  std::optional<std::string_view> sandbox;
  for (int i = 1; i < argc; i++) {
    const std::string_view word = argv[i];
    const auto value = [&]() -> const char* {
      if (i + 1 == argc) fail(Code::usage, word, " needs a value");
      return argv[++i];
    };
    if (word == "--help") a.help = true;
    else if (word == "--threads") a.load.threads = whole_number(word, value());
    else if (word == "--ctx") a.load.ctx = whole_number(word, value());
    else if (word == "--sandbox") sandbox = value();
    else if (word.starts_with("--")) fail(Code::usage, "unknown option ", word);
    else if (a.model.empty()) a.model = word;
    else fail(Code::usage, "unexpected argument ", quoted(word));
  }
  a.sandbox = sandbox_mode(sandbox);
  const char* variable = std::getenv("TEALIGHT_MODEL");
  if (a.model.empty() && variable) a.model = variable;
  if (a.model.empty() && !a.help) fail(Code::usage, "no MODEL given; it is the first argument, or TEALIGHT_MODEL");
  return a;
}

int serve(const Arguments& a, const Function& f) {
  std::unique_ptr<Lm> lm = Lm::load(a.model, a.load);
  Lm& model = *lm;
  const std::unique_ptr<Handler> handler = function_handler(std::move(lm), f);
  return serve_lines(*handler, 0, 1, a.sandbox, [&] { model.warm_threads(); });
}

}  // namespace

int function(int argc, char** argv, const Function& f) {
  try {
    const Arguments a = parse(argc, argv);
    if (a.help) return write_all(1, kHelp) ? 0 : 1;
    return serve(a, f);
  } catch (const Error& e) {
    log_line(e.message);
    return e.code == Code::usage ? 2 : 1;
  } catch (const std::exception& e) {
    log_line(e.what());
    return 1;
  }
}

}  // namespace tealight
