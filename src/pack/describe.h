// What is in a packed file, as text for people or as JSON for programs.
#pragma once
#include <string>

#include "src/pack/pack_file.h"

namespace tealight {

// JSON: {"path", "format": "packed", "version", "bytes", "runtime": MACHINE, "source": "gguf"|"huggingface", "name", "kv",
//   "sections": [{"name", "offset", "bytes", "hash"}], "prefixes": [{"name", "tokens", "bytes"}], "defaults": {...} or null,
//   "tensors": [{"name", "type", "layout": "x16"|"rows", "shape", "bytes", "offset"}]}
std::string describe_pack(const PackFile& file, bool json);

}  // namespace tealight
