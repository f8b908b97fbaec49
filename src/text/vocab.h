// The list of token pieces, as it lies in a file, and a flat index from piece to id that is built when text is first encoded.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/short_text.h"
#include "src/text/tokenizer.h"

namespace tealight {

// An open-addressing table from 64-bit hashes to the numbers below a limit; the caller compares keys. A slot is one word:
// the number + 1 in its low bits (0: free), bits of the hash in the others.
class FlatIndex {
 public:
  FlatIndex() = default;
  FlatIndex(FlatIndex&&) = default;
  FlatIndex& operator=(FlatIndex&&) = default;
  void reserve(size_t n) { reserve(n, n); }    // room for the numbers 0 to n - 1
  void reserve(size_t n, size_t entries);      // for so many of them
  // A table that lies in a file, made by this class for the numbers 0 to n - 1, and lives as long as this. What is in it need not
  // be sound: find() ends, and hands out no number but these. Code::tokenizer naming `what` when its size is not the one for n.
  void use(std::span<const uint32_t> slots, size_t n, std::string_view what);
  std::span<const uint32_t> slots() const { return {slots_, slots_ ? mask_ + 1 : 0}; }
  // The first number of this hash for which same(number) holds, or UINT32_MAX.
  template <class Same>
  uint32_t find(uint64_t hash, Same same) const {
    if (!slots_) return UINT32_MAX;
    const uint32_t tag = tag_of(hash);
    for (size_t i = hash & mask_, probes = 0; probes <= kMaxProbes; i = (i + 1) & mask_, probes++) {
      const uint32_t s = slots_[i], number = (s & low_) - 1;
      if (s == 0) return UINT32_MAX;
      if (((s ^ tag) & ~low_) == 0 && number < limit_ && same(number)) return number;
    }
    return UINT32_MAX;
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
        if ((in[i] = hash(at + i, hashes[i]))) __builtin_prefetch(&owned_[hashes[i] & mask_], 1);
      for (size_t i = 0; i < m; i++)
        if (in[i]) insert(hashes[i], uint32_t(at + i));
    }
  }

 private:
  static constexpr size_t kMaxProbes = 4096;   // honest tables of load 1/2 stay below 100
  static size_t slots_for(size_t n);
  uint32_t tag_of(uint64_t hash) const { return uint32_t(hash >> 32) & ~low_; }
  const uint32_t* slots_ = nullptr;            // owned_, or in a file
  std::vector<uint32_t> owned_;
  size_t mask_ = 0;
  uint32_t low_ = 0;                           // the bits of a slot that hold the number
  uint32_t limit_ = 0;                         // numbers are below
};

// A list of strings as GGUF writes it: a little-endian 64-bit length before each. One pass notes where they begin, or a file has
// the list of that too.
class StringList {
 public:
  StringList() = default;
  // `data` holds `count` strings (checked: Code::tokenizer naming `what`), and lives as long as the list.
  StringList(std::span<const std::byte> data, uint64_t count, std::string_view what);
  // The same with where each string begins. Nothing is walked: a string that does not lie in `data` reads as an empty one.
  StringList(std::span<const std::byte> data, std::span<const uint32_t> begins) : data_(data), begins_(begins) {}
  StringList(StringList&&) = default;
  StringList& operator=(StringList&&) = default;
  size_t size() const { return begins_.size(); }
  std::string_view operator[](size_t i) const {
    const size_t at = i < begins_.size() ? begins_[i] : SIZE_MAX;
    if (at >= data_.size() || data_.size() - at < 8) return {};
    const std::byte* p = data_.data() + at;
    uint64_t n;
    __builtin_memcpy(&n, p, 8);
    return n <= data_.size() - at - 8 ? std::string_view(reinterpret_cast<const char*>(p + 8), size_t(n)) : std::string_view();
  }
  std::span<const uint32_t> begins() const { return begins_; }
  const char* end() const { return reinterpret_cast<const char*>(data_.data() + data_.size()); }   // of the bytes that hold them
  static void append(std::string& block, std::string_view s);  // for lists that are not in a file

 private:
  std::span<const std::byte> data_;
  std::vector<uint32_t> owned_;
  std::span<const uint32_t> begins_;           // owned_, or in a file
};

// The token types of GGUF; and of tokenizer.json, the added tokens that its model does not know.
enum class TokenKind : uint8_t { undefined, normal, unknown, control, user_defined, unused, byte, added };

// Facts about all pieces, which take a walk over them to learn.
struct PieceFacts {
  static constexpr size_t kLongest = 1024;     // longer pieces have no place in `lengths`
  TokenId bytes[256];                          // the ids of "<0xXX>", or -1
  uint32_t longest[257];                       // bytes of the longest piece that begins with a byte, at most kLongest; of all, without limit
  uint32_t lengths[kLongest / 32 + 1];         // a bit for each length that pieces have
  // Does no piece have SentencePiece's mark after another character? Seldom asked for, so 0 where nobody has looked yet.
  enum Answer : uint32_t { unknown, yes, no } marks_lead;
  bool has_length(size_t n) const { return n <= kLongest && (lengths[n / 32] >> n % 32 & 1); }
};

// From pieces to ids.
struct PieceIndex {
  FlatIndex table;
  const PieceFacts* facts = nullptr;
  std::unique_ptr<PieceFacts> own;
};

// What is needed to look the words of one text up: the index of all pieces or, for a short text, one of those that occur in it.
struct TextIndex {
  const PieceIndex* all = nullptr;
  PieceIndex some;
  std::unique_ptr<ShortText> text;             // where `all` is null
  const PieceIndex& operator*() const { return all ? *all : some; }
  const PieceIndex* operator->() const { return all ? all : &some; }
};

// What a file holds ready for a vocabulary: see TokenizerTables.
struct VocabTables {
  std::span<const uint32_t> slots;             // of the index
  const PieceFacts* facts = nullptr;
};

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
  // Is it surely a normal one? A quick look for walks: most are.
  bool plain(size_t i) const {
    int32_t k = 0;
    if (kinds) __builtin_memcpy(&k, kinds + 4 * i, 4);
    return k == int32_t(TokenKind::normal) && (control.empty() || TokenId(i) < control.front() || TokenId(i) > control.back());
  }
  bool special(TokenId id) const {             // control and unknown tokens
    const TokenKind k = kind(id);
    return k == TokenKind::control || k == TokenKind::unknown;
  }
  float score(TokenId id) const;
  // The id of a piece, of any kind. The first of two equal pieces counts.
  std::optional<TokenId> find(std::string_view piece) const;
  // The same, for the words of a text: never a special, an added or a byte token.
  TokenId find_text(const PieceIndex& index, std::string_view piece) const;   // -1: none
  // The id of "<0xXX>", or -1.
  TokenId byte_token(const PieceIndex& index, uint8_t b) const {
    const TokenId id = index.facts->bytes[b];
    return contains(id) ? id : -1;
  }
  const PieceIndex& index() const;             // of all pieces; made when it is first wanted, unless a file has it
  // For the words of `text`, which outlives it, and the byte tokens. Making the whole index takes longer than a new process should
  // need to read its prompt: the first short texts get one of their own.
  TextIndex index_for(std::string_view text) const;
  mutable std::atomic<int> short_texts = 2;    // how many more do; 0 once there is the whole one
  bool marks_lead() const;                     // PieceFacts::marks_lead, by a walk

  // Takes the index from a file instead of making it.
  void use(const VocabTables& ready) {
    ready_ = ready;
    short_texts = 0;
  }
  VocabTables tables() const { return {index().table.slots(), index().facts}; }

 private:
  void walk(PieceIndex& index) const;
  void walk(PieceIndex& index, const ShortText& text) const;
  VocabTables ready_;
  mutable std::once_flag once_;
  mutable std::unique_ptr<PieceIndex> index_;
};

// What SentencePiece writes for a space.
constexpr std::string_view kSpaceMark = "\u2581";

// The byte of "<0xXX>", or -1.
int byte_of_piece(std::string_view piece);

}  // namespace tealight
