#include "src/text/short_text.h"

namespace tealight {

ShortText::ShortText(std::string_view text) : text_(text.substr(0, kMostBytes)), first_(size_t(1) << kSlotBits) {
  entries_.reserve(8 * text_.size());
  for (size_t at = 0; at < text_.size(); at++)
    for (size_t n = 1; n <= 8 && n <= text_.size() - at; n++) add(at, n);
}

void ShortText::add(size_t at, size_t n) {
  constexpr int kMostEqual = 32;
  const uint64_t h = head(text_.data() + at, n, text_.data() + text_.size());
  uint16_t& first = first_[slot(h, n)];
  int equal = 0;
  for (uint16_t e = first; e; e = entries_[e - 1u].next) {
    if (entries_[e - 1u].head != h || entries_[e - 1u].bytes != n) continue;
    if (n < 8) return;                         // all of such a string is in its head
    repetitive_ |= ++equal > kMostEqual;
  }
  entries_.push_back({h, uint16_t(at), first, uint8_t(n)});
  first = uint16_t(entries_.size());
}

}  // namespace tealight
