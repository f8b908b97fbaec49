// Writes packed files (format.h).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "kernels/types.h"
#include "src/pack/pack_file.h"

namespace tealight {

struct PackOptions {
  std::string model;                   // any path that open_model() takes; of a packed one, the prefixes are left behind
  std::string runtime;                 // an executable, or a packed file whose runtime is taken
  std::string output;
  std::string defaults;                // default request fields, checked by the caller: a JSON object, or ""
  Dtype kv = Dtype::f16;               // type of the prefixes' keys and values
  uint64_t fingerprint = 0;            // Lm::state_fingerprint() of them
  struct Prefix {
    std::string name;
    std::vector<TokenId> ids;
    std::vector<std::byte> kv;         // nn::State's snapshot of them
  };
  std::vector<Prefix> prefixes;
  std::vector<std::byte> search;       // RowSearch's bytes for the head, or nothing
  std::function<void(uint64_t done, uint64_t bytes)> progress;   // of the file; may be empty
};

struct PackResult {
  uint64_t file_bytes = 0, runtime_bytes = 0, tensors_bytes = 0, tokenizer_bytes = 0, kv_bytes = 0, search_bytes = 0;
  size_t n_tensors = 0, n_interleaved = 0;
  std::string_view machine;            // of the runtime
};

// The same bytes for the same input. The file appears whole or not at all, with mode 0755. Errors: Code::file, Code::format and
// those of loading the model.
PackResult write_pack(const PackOptions& options);

}  // namespace tealight
