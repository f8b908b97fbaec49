// A packed file (format.h), opened: views into one mapping, nothing copied but what is small.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/fd.h"
#include "src/io/gguf.h"
#include "src/io/hf.h"
#include "src/pack/directory.h"
#include "src/pack/format.h"

namespace tealight {

class PackFile {
 public:
  // Null for a file of another kind, or none. A packed one is checked: sizes and places of everything, and the checksums of
  // the table and of metadata, template, defaults and directory. Errors: Code::file; Code::format naming the section, also for a
  // packed file that was cut off.
  static std::shared_ptr<const PackFile> open(const std::string& path);
  // From bytes in memory, for tests; there is no descriptor then.
  static std::shared_ptr<const PackFile> parse(std::shared_ptr<const Mapping> file);
  PackFile(const PackFile&) = delete;
  PackFile& operator=(const PackFile&) = delete;

  // The source, as its own reader would have it: one of the two, the other is null.
  const std::shared_ptr<const Gguf>& gguf() const { return gguf_; }
  const std::shared_ptr<const HfCheckpoint>& hf() const { return hf_; }
  const TokenizerTables& tables() const { return tables_; }          // for gguf()'s tokenizer; valid as long as this
  std::string_view chat_template() const { return text("template"); }
  std::string_view defaults() const { return text("defaults"); }     // default request fields: a JSON object, or ""
  std::string_view model_name() const { return directory_.model; }
  Dtype kv() const { return directory_.kv; }                         // type of keys and values that it was packed for
  uint64_t fingerprint() const { return directory_.fingerprint; }    // the prefixes hold where Lm::state_fingerprint() is this
  uint64_t weights_hash() const { return find("tensors")->hash; }    // of their bytes, as the table has it

  struct Prefix {
    std::string_view name;
    std::span<const TokenId> ids;
    std::span<const std::byte> kv;     // nn::State's snapshot of kv() values; page-aligned in the file
  };
  std::vector<Prefix> prefixes() const;
  // RowSearch's bytes for the head, valid as long as file(); empty: there are none.
  std::span<const std::byte> search() const { return section("search"); }
  const std::shared_ptr<const Mapping>& file() const { return file_; }
  const std::string& path() const { return file_->path(); }

  // Checksum of the large section that open() does not read, but text needs; quick when it has been checked before.
  void check_tokenizer() const;
  // Checksums of all sections. Calls progress(done bytes) between pieces.
  void verify(const std::function<void(uint64_t)>& progress = {}) const;

  std::span<const pack::Section> sections() const { return sections_; }
  const WeightSet& weights() const { return gguf_ ? gguf_->weights() : hf_->weights; }
  std::span<const std::byte> section(std::string_view name) const;   // empty where there is none

 private:
  explicit PackFile(std::shared_ptr<const Mapping> file);
  const pack::Section* find(std::string_view name) const;
  std::string_view text(std::string_view name) const;
  std::string where(std::string_view section) const;
  void read_table();
  void check(const pack::Section& s, const std::function<void(uint64_t)>& progress = {}, uint64_t done = 0) const;
  void move_tensors(WeightSet& weights, uint32_t file);
  void make_gguf();
  void make_hf();

  std::shared_ptr<const Mapping> file_;
  std::vector<pack::Section> sections_;
  pack::Directory directory_;          // but for the tensors, which the source has
  TokenizerTables tables_;
  std::shared_ptr<const Gguf> gguf_;
  std::shared_ptr<const HfCheckpoint> hf_;
  mutable std::atomic<bool> tokenizer_checked_ = false;
};

// A model, whatever its form: one of gguf and hf is set; pack too when they are parts of a packed file.
struct ModelFiles {
  std::shared_ptr<const PackFile> pack;
  std::shared_ptr<const Gguf> gguf;
  std::shared_ptr<const HfCheckpoint> hf;
};
// path: a packed file, a .gguf, a .safetensors beside its config.json, or a Hugging Face folder.
ModelFiles open_model(const std::string& path);

// The model to use where none is named: $TEALIGHT_MODEL, else the own executable if it is a packed file, else "".
std::string default_model();
// The path by which this process was started.
std::string own_executable();

}  // namespace tealight
