#include "src/base/base64.h"

#include <algorithm>
#include <cstdint>

namespace tealight {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t v = 0;
    for (size_t j = 0; j < 3; j++) v = v << 8 | (j < n ? uint8_t(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; j++) out += j <= n ? kDigits[v >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

bool base64_decode(std::string_view text, std::string& out) {
  out.clear();
  if (text.size() % 4) return false;
  out.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const bool last = i + 4 == text.size();
    const size_t pad = last ? (text[i + 3] == '=') + (text[i + 3] == '=' && text[i + 2] == '=') : 0;
    uint32_t v = 0;
    for (size_t j = 0; j < 4; j++) {
      const int d = j + pad < 4 ? digit(text[i + j]) : 0;
      if (d < 0) return false;
      v = v << 6 | uint32_t(d);
    }
    if (pad && v & ((1u << 8 * pad) - 1)) return false;   // bits that no byte takes
    for (size_t j = 0; j + pad < 3; j++) out += char(v >> (16 - 8 * j) & 255);
  }
  return true;
}

}  // namespace tealight
