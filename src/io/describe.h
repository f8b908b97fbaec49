// What is in a file of weights, as text for people or as JSON for programs.
#pragma once
#include <string>

namespace tealight {

// path: a .gguf (one of a split model opens all), a .safetensors, a .safetensors.index.json, or a Hugging Face folder; the
// format is taken from the content. The text shortens long values; the JSON has everything:
//   {"path", "format": "gguf"|"safetensors", "version", "alignment", "files": [{"path", "bytes"}],
//    "metadata": {KEY: {"type", "value"}} (safetensors: {KEY: TEXT}), "config": {...} (folders),
//    "parameters", "tensor_bytes", "tensors": [{"name", "type", "shape", "bytes", "offset", "file"}]}
// Errors: those of the readers; Code::format for a file of another kind.
std::string describe(const std::string& path, bool json);

}  // namespace tealight
