// The packed file: a runtime's executable, and behind it everything that a model needs, where it is used as it lies.
//
//   runtime      the executable, unchanged
//   head         names, places and sizes of all sections, so that a file that was cut off can be told from a plain executable
//   tensors      in the order of execution, each 64-byte aligned, in the x16 layout where its uses allow that, else as plain rows
//   search       a coarse copy of the head, where that makes the search for its best rows quicker (RowSearch); may be absent
//   kv.0 ...     keys and values of a prefix, as nn::State lays them out
//   tokenizer    large arrays of the source's metadata and tables that go with them; or the text of tokenizer.json
//   metadata     a GGUF file without tensors; or the texts of config.json, generation_config.json and tokenizer_config.json
//   template     the chat template
//   defaults     default request fields: a JSON object, or nothing
//   directory    what is where in `tensors`, `tokenizer` and `kv`, and the tokens of the prefixes (directory.h)
//   table        a row for each section above
//   footer
//
// Sections follow each other in the file, with zeros between them, and begin at a multiple of section_alignment(). All integers are
// little-endian. The table and all sections that are small are checked when a file is opened; see PackFile for the rest.
#pragma once
#include <cstdint>
#include <string_view>

namespace tealight::pack {

constexpr uint32_t kVersion = 1;
constexpr char kMagic[8] = {'T', 'E', 'A', 'L', 'P', 'A', 'C', 'K'};       // of the footer
constexpr char kHeadMagic[8] = {'T', 'E', 'A', 'L', 'H', 'E', 'A', 'D'};   // of the head
constexpr uint32_t kMaxSections = 128;
constexpr uint64_t kPage = 4096, kTensorsAlignment = 512 << 10, kKvAlignment = 64 << 10, kTensorAlignment = 64;

constexpr uint64_t section_alignment(std::string_view name) {
  return name == "tensors" ? kTensorsAlignment : name.starts_with("kv.") ? kKvAlignment : kPage;
}

// A row of the table.
struct Section {
  char name[16];                       // padded with zeros
  uint64_t offset, bytes;              // in the file
  uint64_t hash;                       // XXH3, 64 bits, of the section; 0 in the head
  std::string_view title() const { return {name, name[15] ? 16 : std::string_view(name).size()}; }
};
static_assert(sizeof(Section) == 40);

struct Footer {
  char magic[8];
  uint32_t version;
  uint32_t n_sections;
  uint64_t table_offset;
  uint64_t file_bytes;                 // of the whole file
  uint64_t table_hash;                 // XXH3 of the table
  uint64_t unused[2];
  uint64_t hash;                       // XXH3 of what stands before it
};
static_assert(sizeof(Footer) == 64);

// Begins the head; the rows follow.
struct Head {
  char magic[8];
  uint32_t version;
  uint32_t n_sections;
  uint64_t file_bytes;
};
static_assert(sizeof(Head) == 24);

}  // namespace tealight::pack
