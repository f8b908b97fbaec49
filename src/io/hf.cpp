#include "src/io/hf.h"

#include "src/base/error.h"
#include "src/io/safetensors.h"

namespace tealight {
namespace {

constexpr size_t kMaxConfigBytes = 4 << 20;
constexpr size_t kMaxTokenizerConfigBytes = 32 << 20;   // lists every added token
constexpr size_t kMaxTemplateBytes = 1 << 20;

// Published configs hold Python's Infinity, hence lenient.
JsonDoc json_object(std::string_view text, const std::string& name) {
  JsonDoc doc = JsonDoc::parse(text, name, true);
  if (!doc.root().is_object()) fail(Code::format, name, ": expected an object, got ", kind_name(doc.root().kind()));
  return doc;
}

std::string text_if_there(const std::string& path, size_t max_bytes) {
  return file_exists(path) ? read_text_file(path, max_bytes) : std::string();
}

// With its slash.
std::string folder_of(const std::string& path) {
  return is_directory(path) ? path + (path.ends_with('/') ? "" : "/") : path.substr(0, path.rfind('/') + 1);
}

std::string template_of(Json v, const std::string& path) {
  if (!v || v.is_null()) return "";
  const std::string what = path + ": chat_template";
  if (v.is_string()) return std::string(v.string(what));
  if (!v.is_array()) fail(Code::format, what, ": expected a string or a list of templates, got ", kind_name(v.kind()));
  for (Json e : v.elements())
    if (e["name"].string(what + ": name") == "default") return std::string(e["template"].string(what + ": template"));
  return "";
}

WeightSet open_weights(const std::string& folder) {
  const std::string single = folder + "model.safetensors", index = single + ".index.json";
  if (file_exists(single)) return Safetensors::open(single).weights;
  if (file_exists(index)) return Safetensors::open_index(index).weights;
  fail(Code::file, folder, ": neither model.safetensors nor model.safetensors.index.json is there");
}

}  // namespace

HfCheckpoint::Texts HfCheckpoint::texts(const std::string& path) {
  const std::string folder = folder_of(path);
  return {read_text_file(folder + "config.json", kMaxConfigBytes), text_if_there(folder + "generation_config.json", kMaxConfigBytes),
          text_if_there(folder + "tokenizer_config.json", kMaxTokenizerConfigBytes)};
}

HfCheckpoint HfCheckpoint::parse(const Texts& texts, std::string_view where) {
  HfCheckpoint c;
  c.config = json_object(texts.config, cat(where, "config.json"));
  if (!texts.generation_config.empty()) c.generation_config = json_object(texts.generation_config, cat(where, "generation_config.json"));
  if (!texts.tokenizer_config.empty()) c.tokenizer_config = json_object(texts.tokenizer_config, cat(where, "tokenizer_config.json"));
  return c;
}

HfCheckpoint HfCheckpoint::open(const std::string& path) {
  const bool whole = is_directory(path);
  const std::string folder = folder_of(path);
  HfCheckpoint c = parse(texts(path), folder);
  if (file_exists(folder + "tokenizer.json")) c.tokenizer_json_path = folder + "tokenizer.json";
  const std::string jinja = folder + "chat_template.jinja";
  if (file_exists(jinja)) c.chat_template = read_text_file(jinja, kMaxTemplateBytes);
  else c.chat_template = template_of(c.tokenizer_config["chat_template"], folder + "tokenizer_config.json");
  c.weights = whole                          ? open_weights(folder)
              : path.ends_with(".index.json") ? Safetensors::open_index(path).weights
                                              : Safetensors::open(path).weights;
  return c;
}

}  // namespace tealight
