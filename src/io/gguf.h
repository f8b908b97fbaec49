// GGUF v2 and v3 (github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian, one file or split into several.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/io/weights.h"

namespace tealight {

enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

// A metadata value as a view into the mapping. Nothing is copied; strings of an array are walked or indexed on demand.
struct GgufValue {
  GgufType type = GgufType::u8;       // of the value, or of the elements of an array
  bool is_array = false;
  uint64_t count = 1;                 // elements of an array
  const std::byte* data = nullptr;    // first byte of the payload (little-endian, unaligned)
  uint64_t bytes = 0;                 // payload size
  // A string's payload is its characters; that of an array of strings has each string's length (8 bytes) before it.

  explicit operator bool() const { return data != nullptr; }
};

std::string_view type_name(GgufType t);   // "u8", "string", ...

// The number that GGUF gives to an element type; -1 for a type that it cannot store.
int gguf_type_number(Dtype t);

class Gguf {
 public:
  // Opens and checks a file (and, when it says that it is split, its siblings NAME-0000i-of-0000n.gguf). Everything that
  // is not tensor data is checked here; no tensor data is read. Errors: Code::file, Code::format with offset, key or tensor.
  static Gguf open(const std::string& path);
  static Gguf open(std::shared_ptr<const Mapping> file);    // mapped already
  static Gguf parse(std::shared_ptr<const Mapping> file);   // one file, not split

  // Adds a pair whose key and payload live as long as the weights' files do. `bytes` must fit type and count, but what is in an
  // array of strings need not be sound. A key that is there already: Code::format.
  void add(std::string_view key, const GgufValue& value);

  struct Entry {
    std::string_view key;
    GgufValue value;
  };
  std::span<const Entry> metadata() const { return entries_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  WeightSet& weights() { return weights_; }
  const WeightSet& weights() const { return weights_; }

  GgufValue find(std::string_view key) const;               // empty when absent

  // Typed look-ups: nullopt when absent; Code::format naming the key when the type does not fit. Integers of any width
  // and sign are accepted where the value fits; a float key also accepts f64.
  std::optional<uint64_t> uint(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  std::optional<std::vector<uint64_t>> uints(std::string_view key) const;     // array, or one number as an array of one
  std::optional<std::vector<double>> numbers(std::string_view key) const;     // array of floats, or one number
  std::optional<std::vector<std::string_view>> strings(std::string_view key) const;

 private:
  void take(std::vector<Entry> entries, std::vector<uint32_t> by_key, uint32_t version, uint64_t alignment,
            std::span<const WeightView> tensors);

  std::vector<Entry> entries_;         // in file order
  std::vector<uint32_t> by_key_;       // indices of entries_, sorted by key
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  WeightSet weights_;
};

}  // namespace tealight
