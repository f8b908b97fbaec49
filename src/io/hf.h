// A checkpoint as Hugging Face libraries lay it out: a folder of config.json, weights and tokenizer files.
#pragma once
#include <string>

#include "src/base/json.h"
#include "src/io/weights.h"

namespace tealight {

struct HfCheckpoint {
  JsonDoc config;                   // an object
  JsonDoc generation_config;        // empty when there is no such file
  JsonDoc tokenizer_config;         // empty when there is no such file
  std::string tokenizer_json_path;  // "" when there is no such file
  std::shared_ptr<const Mapping> tokenizer_json;   // its text, where it is no file of its own (packed); else null
  std::string chat_template;        // chat_template.jinja, else tokenizer_config's (of several the one named "default"); may be ""
  WeightSet weights;

  // path: the folder (model.safetensors, else model.safetensors.index.json), or a .safetensors or .index.json file in it.
  // Errors: Code::file when config.json or the weights are absent or a text is too large; Code::format.
  static HfCheckpoint open(const std::string& path);
  // The texts of config.json, generation_config.json and tokenizer_config.json in the folder of such a path; "" where there is
  // no such file.
  struct Texts {
    std::string config, generation_config, tokenizer_config;
  };
  static Texts texts(const std::string& path);
  // Everything but the weights, the tokenizer and the template, from texts. `where` begins their names in errors.
  static HfCheckpoint parse(const Texts& texts, std::string_view where);
};

}  // namespace tealight
