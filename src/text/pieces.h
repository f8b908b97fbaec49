// A text cut into pieces: what the steps between text and token ids hand on.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tealight {

struct Pieces {
  std::string text;
  std::vector<uint32_t> ends;    // of each piece in `text`; none is empty
  bool at_start = true;          // the first piece begins where the whole input begins

  size_t size() const { return ends.size(); }
  std::string_view operator[](size_t i) const {
    const uint32_t begin = i ? ends[i - 1] : 0;
    return std::string_view(text).substr(begin, ends[i] - begin);
  }
  void clear() {
    text.clear();
    ends.clear();
  }
  // Ends a piece at the end of the text written so far.
  void cut() {
    if (text.size() > (ends.empty() ? 0 : ends.back())) ends.push_back(uint32_t(text.size()));
  }
  void add(std::string_view piece) {
    text += piece;
    cut();
  }
};

}  // namespace tealight
