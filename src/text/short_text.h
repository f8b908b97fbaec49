// Which strings occur in a short text: what a walk over a vocabulary asks of each piece, in place of a table of all pieces. The first
// eight bytes decide nearly always.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace tealight {

class ShortText {
 public:
  static constexpr size_t kMostBytes = 1024;
  explicit ShortText(std::string_view text);   // of at most kMostBytes; it outlives this
  // Does one stretch of eight bytes come so often that asking would be slow?
  bool repetitive() const { return repetitive_; }

  // The first eight bytes of a string of n bytes as a number, zeros behind a shorter one. What lies before `end` may be read.
  static uint64_t head(const char* p, size_t n, const char* end) {
    uint64_t h = 0;
    if (end - p < 8) {
      std::memcpy(&h, p, std::min<size_t>(n, 8));
      return h;
    }
    std::memcpy(&h, p, 8);
    return first_bytes(h, n);
  }
  static uint64_t first_bytes(uint64_t h, size_t n) { return n ? h & ~uint64_t(0) >> (64 - 8 * std::min<size_t>(n, 8)) : 0; }
  // Is there a place where same(the n bytes there) holds, n > 0? Asked only where the text has the same head.
  template <class Same>
  bool has(uint64_t head, size_t n, Same same) const {
    const size_t n8 = std::min<size_t>(n, 8);
    for (uint16_t e = first_[slot(head, n8)]; e; e = entries_[e - 1u].next) {
      const Entry& x = entries_[e - 1u];
      if (x.head == head && x.bytes == n8 && n <= text_.size() - x.at && same(text_.substr(x.at, n))) return true;
    }
    return false;
  }

 private:
  struct Entry {
    uint64_t head;
    uint16_t at, next;                         // next: index + 1 in the same slot, 0: none
    uint8_t bytes;
  };
  static constexpr int kSlotBits = 13;
  static size_t slot(uint64_t head, size_t n) { return (head + n) * 0x9e3779b97f4a7c15u >> (64 - kSlotBits); }
  void add(size_t at, size_t n);

  std::string_view text_;
  std::vector<uint16_t> first_;
  std::vector<Entry> entries_;
  bool repetitive_ = false;
};

}  // namespace tealight
