// Writes GGUF v3 (the format document is named in gguf.h).
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/types.h"

namespace tealight {

struct GgufValue;

// Pairs and tensors are written in the order in which they are given. A key or tensor given twice is our own bug.
// set("general.alignment", uint32_t(64)) moves the tensors to multiples of 64; without it they lie at multiples of 32.
class GgufWriter {
 public:
  void set(std::string_view key, uint32_t v);
  void set(std::string_view key, int32_t v);
  void set(std::string_view key, uint64_t v);
  void set(std::string_view key, float v);
  void set(std::string_view key, bool v);
  void set(std::string_view key, std::string_view v);
  void set(std::string_view key, const char* v) { set(key, std::string_view(v)); }
  void set(std::string_view key, std::span<const int32_t> v);
  void set(std::string_view key, std::span<const float> v);
  void set(std::string_view key, std::span<const std::string> v);
  void set(std::string_view key, const GgufValue& v);   // as another file has it

  // shape: row-major, 1 to 4 dimensions. The data are not copied: they must live until bytes() or write().
  void tensor(std::string_view name, Dtype dtype, std::span<const uint64_t> shape, const void* data);

  std::string bytes() const;                   // the whole file
  void write(const std::string& path) const;   // through PATH.tmp; Code::file when it cannot be written

 private:
  struct Tensor {
    std::string name;
    Dtype dtype;
    std::vector<uint64_t> shape;
    const void* data;
    uint64_t bytes;
  };
  std::string head() const;                    // everything before the data section, padded
  std::string pairs_;
  uint64_t n_pairs_ = 0, alignment_ = 32;
  std::vector<Tensor> tensors_;
};

}  // namespace tealight
