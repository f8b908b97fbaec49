// The list of token pieces, as it lies in a file, and a flat index from piece to id that is built when text is first encoded.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/tokenizer.h"

namespace tealight {

// An open-addressing table from 64-bit hashes to the numbers below a limit; the caller compares keys. A slot is one word:
// the number + 1 in its low bits (0: free), bits of the hash in the others.
class FlatIndex {
 public:
  void reserve(size_t n);                      // room for the numbers 0 to n - 1
  // The first number of this hash for which same(number) holds, or UINT32_MAX.
  template <class Same>
  uint32_t find(uint64_t hash, Same same) const {
    if (slots_.empty()) return UINT32_MAX;
    const uint32_t tag = tag_of(hash);
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const uint32_t s = slots_[i];
      if (s == 0) return UINT32_MAX;
      if (((s ^ tag) & ~low_) == 0 && same((s & low_) - 1)) return (s & low_) - 1;
    }
  }
  // Fails with Code::tokenizer when so many hashes collide that somebody must have sought them out.
  void insert(uint64_t hash, uint32_t value);  // duplicates stay behind the first
  // Makes room for and inserts the numbers 0 to n - 1; hash(i, h) sets the hash of i, or says false to leave it out.
  // The slots of a block are asked for together, as each is a cache miss.
  template <class Hash>
  void fill(size_t n, Hash hash) {
    constexpr size_t kBlock = 32;
    reserve(n);
    uint64_t hashes[kBlock];
    bool in[kBlock];
    for (size_t at = 0; at < n; at += kBlock) {
      const size_t m = std::min(kBlock, n - at);
      for (size_t i = 0; i < m; i++)
        if ((in[i] = hash(at + i, hashes[i]))) __builtin_prefetch(&slots_[hashes[i] & mask_], 1);
      for (size_t i = 0; i < m; i++)
        if (in[i]) insert(hashes[i], uint32_t(at + i));
    }
  }

 private:
  uint32_t tag_of(uint64_t hash) const { return uint32_t(hash >> 32) & ~low_; }
  std::vector<uint32_t> slots_;
  size_t mask_ = 0;
  uint32_t low_ = 0;                           // the bits of a slot that hold the number
};

// A list of strings as GGUF writes it: a little-endian 64-bit length before each. One pass notes where they begin.
class StringList {
 public:
  StringList() = default;
  // `data` holds `count` strings (checked: Code::tokenizer naming `what`), and lives as long as the list.
  StringList(std::span<const std::byte> data, uint64_t count, std::string_view what);
  size_t size() const { return begins_.size(); }
  std::string_view operator[](size_t i) const {
    const std::byte* p = data_ + begins_[i];
    uint64_t n;
    __builtin_memcpy(&n, p, 8);
    return {reinterpret_cast<const char*>(p + 8), size_t(n)};
  }
  static void append(std::string& block, std::string_view s);  // for lists that are not in a file

 private:
  const std::byte* data_ = nullptr;
  std::vector<uint32_t> begins_;
};

// The token types of GGUF; and of tokenizer.json, the added tokens that its model does not know.
enum class TokenKind : uint8_t { undefined, normal, unknown, control, user_defined, unused, byte, added };

class Vocab {
 public:
  StringList pieces;
  std::vector<TokenKind> own_kinds;            // from tokenizer.json
  const std::byte* kinds = nullptr;            // or i32 values in a file; null: all are normal
  const std::byte* scores = nullptr;           // f32 values, or null
  std::string owned;                           // the strings, when they are not in a file
  std::vector<TokenId> control;                // sorted; control tokens that the file does not mark so

  size_t size() const { return pieces.size(); }
  std::string_view piece(TokenId id) const { return pieces[size_t(id)]; }
  bool contains(TokenId id) const { return id >= 0 && size_t(id) < size(); }
  TokenKind kind(TokenId id) const;
  bool special(TokenId id) const {             // control and unknown tokens
    const TokenKind k = kind(id);
    return k == TokenKind::control || k == TokenKind::unknown;
  }
  float score(TokenId id) const;
  // The id of a piece, of any kind. The first of two equal pieces counts.
  std::optional<TokenId> find(std::string_view piece) const;
  // The same, for the words of a text: never a special, an added or a byte token.
  TokenId find_text(std::string_view piece) const;   // -1: none
  // The id of "<0xXX>", or -1.
  TokenId byte_token(uint8_t b) const { return index().bytes[b]; }
  size_t longest_piece() const { return index().longest; }

 private:
  struct Index {
    FlatIndex table;
    TokenId bytes[256];
    size_t longest = 0;
  };
  const Index& index() const;
  mutable std::once_flag once_;
  mutable std::unique_ptr<Index> index_;
};

// The byte of "<0xXX>", or -1.
int byte_of_piece(std::string_view piece);

}  // namespace tealight
