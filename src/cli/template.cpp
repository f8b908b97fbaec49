// tealight template: renders a chat template with variables from standard input.
#include <errno.h>
#include <unistd.h>

#include <cstdio>

#include "src/base/error.h"
#include "src/base/mapping.h"
#include "src/cli/commands.h"
#include "src/cli/model_options.h"
#include "src/io/gguf.h"
#include "src/pack/pack_file.h"
#include "src/text/chat_template.h"

namespace tealight::cli {
namespace {

constexpr size_t kMaxInputBytes = 256 << 20, kMaxTemplateBytes = 16 << 20, kMaxConfigBytes = 64 << 20;

constexpr CommandInfo kInfo = {
    "template", "FILE", "render a chat template with variables from standard input",
    "FILE is a .jinja, a .gguf, a packed file, a tokenizer_config.json or a Hugging Face folder. Standard input is one JSON object,\n"
    "whose members are the template's variables (messages, tools, add_generation_prompt, bos_token, ...); `now`, as in\n"
    "\"2031-03-14 09:26:53\", sets the clock. What the template renders goes to standard output, byte for byte.",
    {}};

std::string read_input() {
  std::string text;
  char chunk[1 << 16];
  while (true) {
    const ssize_t n = ::read(0, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(Code::file, "standard input: cannot read");
    if (n == 0) return text;
    text.append(chunk, size_t(n));
    if (text.size() > kMaxInputBytes) fail(Code::request, "standard input: more than ", kMaxInputBytes, " bytes");
  }
}

// The template of a tokenizer_config.json: a text, or a list of which the one named "default" is meant.
std::string from_config(const std::string& path) {
  const JsonDoc config = JsonDoc::parse(read_text_file(path, kMaxConfigBytes), path, true);
  const Json value = config["chat_template"];
  const std::string what = path + ": chat_template";
  if (!value.is_array()) return value && !value.is_null() ? std::string(value.string(what)) : "";
  for (Json e : value.elements())
    if (e["name"].string(what + ": name") == "default") return std::string(e["template"].string(what + ": template"));
  return "";
}

std::string find_template(const std::string& path) {
  if (const auto file = PackFile::open(path)) return std::string(file->chat_template());
  if (path.ends_with(".gguf")) return std::string(Gguf::open(path).string("tokenizer.chat_template").value_or(""));
  if (path.ends_with(".json")) return from_config(path);
  const std::string folder = is_directory(path) ? path : path.ends_with(".safetensors") ? path.substr(0, path.rfind('/') + 1) + "." : "";
  if (folder.empty()) return read_text_file(path, kMaxTemplateBytes);
  if (file_exists(folder + "/chat_template.jinja")) return read_text_file(folder + "/chat_template.jinja", kMaxTemplateBytes);
  return from_config(folder + "/tokenizer_config.json");
}

int run(const Args& args) {
  size_t next = 0;
  const std::string path = model_path(args, kInfo, next);
  if (next < args.positional().size()) fail(Code::usage, "template: expected one FILE, got ", args.positional().size());
  const std::string source = find_template(path);
  if (source.empty() && !path.ends_with(".jinja")) fail(Code::template_, path, ": it has no chat template");
  const ChatTemplate chat = ChatTemplate::parse(source);
  const JsonDoc variables = JsonDoc::parse(read_input(), "standard input");
  if (!variables.root().is_object()) fail(Code::request, "standard input: expected an object, got ", kind_name(variables.root().kind()));
  const Json now = variables["now"];
  const std::string text = chat.render(variables.root(), now.is_string() ? now.string("now") : std::string_view());
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    fail(Code::file, "standard output: cannot write");
  return 0;
}

}  // namespace

const Command template_command = {kInfo, run};

}  // namespace tealight::cli
