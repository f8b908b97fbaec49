// tealight inspect: metadata and tensors of a file of weights.
#include <cstdio>

#include "src/base/error.h"
#include "src/cli/commands.h"
#include "src/io/describe.h"
#include "src/pack/describe.h"

namespace tealight::cli {
namespace {

constexpr Option kOptions[] = {{"json", "", "", "print one JSON object with everything"}};
constexpr CommandInfo kInfo = {
    "inspect", "FILE", "Shows the metadata and the tensors of a model file.",
    "FILE is a .gguf (any file of a split model), a .safetensors, a .safetensors.index.json, a Hugging Face folder, or a packed\n"
    "file, whose table of contents is shown.\n"
    "Shapes are row-major, the outermost dimension first. No tensor data is read.",
    kOptions};

int run(const Args& args) {
  const auto& words = args.positional();
  const std::string path = words.empty() ? default_model() : std::string(words[0]);
  if (words.size() > 1 || path.empty()) fail(Code::usage, "inspect: expected one FILE, got ", words.size());
  const auto packed = PackFile::open(path);
  const std::string text = packed ? describe_pack(*packed, args.flag("json")) : describe(path, args.flag("json"));
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    fail(Code::file, "standard output: cannot write");
  return 0;
}

}  // namespace

const Command inspect_command = {kInfo, run};

}  // namespace tealight::cli
