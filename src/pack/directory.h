// The directory section: what is where in the large sections.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/io/gguf.h"
#include "src/text/tables.h"

namespace tealight::pack {

enum class SourceKind : uint32_t { gguf = 1, hf = 2 };

// Views point into the bytes that the directory was read from.
struct Directory {
  struct Array {                       // of the source's metadata, in `tokenizer`
    std::string_view key;
    GgufType type = GgufType::u8;
    uint64_t count = 0, offset = 0, bytes = 0;
  };
  struct Table {                       // of TokenizerTables, in `tokenizer`
    uint32_t which = 0;
    uint64_t offset = 0, count = 0;    // bytes; words
  };
  struct Prefix {                      // its keys and values are in kv.N
    std::string_view name;             // of the file that it was made from
    std::vector<TokenId> ids;
  };

  SourceKind source = SourceKind::gguf;
  Dtype kv = Dtype::f32;
  std::string_view model;              // name for people, where the metadata has none
  uint64_t fingerprint = 0;            // Lm::state_fingerprint() of the prefixes' keys and values
  std::vector<WeightView> tensors;     // in rising offsets, which count from the begin of `tensors`; without data and file
  std::vector<Array> arrays;
  std::vector<Table> tables;
  std::vector<Prefix> prefixes;

  std::string bytes() const;
  // Checks everything against the sizes of the sections. Errors: Code::format, beginning with `what`.
  static Directory read(std::string_view bytes, uint64_t tensors_bytes, uint64_t tokenizer_bytes, const std::string& what);
};

// Bytes of a tensor in a layout; nothing where type and shape do not allow that, or on overflow.
std::optional<uint64_t> tensor_bytes(Dtype t, std::span<const uint64_t> shape, bool interleaved);

}  // namespace tealight::pack
