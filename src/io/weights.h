// A checkpoint as named views into mapped files, whatever the format.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/types.h"
#include "src/base/mapping.h"

namespace tealight {

// One tensor in a file. The shape is row-major (outermost dimension first, as in PyTorch) in every format. `data` has no
// alignment: a safetensors body may begin anywhere, so floats are read with memcpy or unaligned loads.
struct WeightView {
  static constexpr int kMaxRank = 8;
  std::string_view name;
  Dtype dtype = Dtype::f32;
  bool interleaved = false;    // rows lie in the x16 layout (packed files; kernels/types.h), `bytes` being what that takes
  bool computable = true;      // false: a type that the format knows and we do not; using it is an error that names the tensor
  uint32_t file_type = 0;      // the format's own type number (GGUF), for messages
  std::string_view type_name;  // the format's own name of the type, also where it is not computable
  int rank = 0;
  uint64_t shape[kMaxRank] = {1, 1, 1, 1, 1, 1, 1, 1};   // ones from `rank` on
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint64_t offset = 0;         // in its file
  uint32_t file = 0;           // index of its file
  uint64_t elements() const {
    uint64_t n = 1;
    for (uint64_t d : shape) n *= d;
    return n;
  }
};

// The tensors of one model: all shards of a split file or of a sharded checkpoint. Look-up by name is a flat hash table.
class WeightSet {
 public:
  const WeightView* find(std::string_view name) const;   // null when absent
  std::span<const WeightView> all() const { return views_; }
  std::span<const std::shared_ptr<const Mapping>> files() const { return files_; }

  // For readers. `name` must outlive the set (it points into a mapping or into `names`).
  void add_file(std::shared_ptr<const Mapping> m) { files_.push_back(std::move(m)); }
  void add(const WeightView& v) { views_.push_back(v); }
  void take(std::vector<WeightView> views) { views_ = std::move(views); }   // all at once
  void keep(std::shared_ptr<const void> owner) { owners_.push_back(std::move(owner)); }
  void index();                                          // builds the table; fails (Code::format) on a name used twice

 private:
  std::vector<WeightView> views_;
  std::vector<uint32_t> table_;
  std::vector<std::shared_ptr<const Mapping>> files_;
  std::vector<std::shared_ptr<const void>> owners_;
};

}  // namespace tealight
