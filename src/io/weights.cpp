#include "src/io/weights.h"

#include <bit>

#include "src/base/error.h"
#include "src/base/hash.h"

namespace tealight {

// table_ holds index + 1 of a view, 0 where free; linear probing at half load.
void WeightSet::index() {
  table_.assign(std::bit_ceil(views_.size() * 2 + 1), 0);
  for (size_t i = 0; i < views_.size(); i++) {
    size_t at = hash64(views_[i].name) & (table_.size() - 1);
    for (; table_[at]; at = (at + 1) & (table_.size() - 1)) {
      const WeightView& other = views_[table_[at] - 1];
      if (other.name == views_[i].name)
        fail(Code::format, files_[views_[i].file]->path(), ": tensor ", quoted(other.name), ": the name is used twice");
    }
    table_[at] = uint32_t(i + 1);
  }
}

const WeightView* WeightSet::find(std::string_view name) const {
  if (table_.empty()) return nullptr;
  for (size_t at = hash64(name) & (table_.size() - 1); table_[at]; at = (at + 1) & (table_.size() - 1))
    if (views_[table_[at] - 1].name == name) return &views_[table_[at] - 1];
  return nullptr;
}

}  // namespace tealight
