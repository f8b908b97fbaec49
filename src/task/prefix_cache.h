// Stored states of token prefixes: those of a packed file, and a folder that any number of processes share.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/fd.h"
#include "src/task/lm.h"

namespace tealight {

// The folder holds pieces of sequences, each under the hash of all tokens up to its end: whole pieces of kPiece positions, and
// the rest of a prompt at its exact length. So prompts that begin alike share what they have in common, and a prompt's
// longest stored beginning is found by asking for one name after the other.
//
// A piece is written under a temporary name and renamed, so that nobody sees half of one; its checksum and the tokens themselves
// are compared before it is used. Whatever cannot be read, or does not fit, counts as absent; what cannot be written is
// dropped with one warning. The oldest pieces make room for new ones.
class PrefixCache {
 public:
  static constexpr int kPiece = 64;

  explicit PrefixCache(Lm& lm) : lm_(lm) {}
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Uses a folder, which is made if need be, for up to max_bytes. Errors: Code::file.
  void open(const std::string& dir, uint64_t max_bytes);
  void close() { dir_ = Fd(); }        // the folder is not used from here on
  int fd() const { return dir_.get(); }     // of the folder, -1: none; for the sandbox's rule

  // Puts the longest stored beginning of the prompt that is longer than `held` tokens, and shorter than the prompt, into the
  // sequence. Returns its length, or 0: the sequence is as it was.
  size_t restore(Sequence& sequence, std::span<const TokenId> prompt, size_t held);
  // Stores what is new of the prompt's state; after the answer, as it takes time.
  void store(const Sequence& sequence, std::span<const TokenId> prompt);

 private:
  struct Piece;
  std::vector<Piece> find(std::span<const TokenId> prompt, uint64_t tile_bytes) const;
  bool read(const Piece& p, std::byte* to) const;
  bool write(const Piece& p, std::span<const std::byte> state);
  void make_room(uint64_t bytes);
  uint64_t weights_hash();

  Lm& lm_;
  Fd dir_;
  uint64_t max_bytes_ = 0, seed_ = 0;
  bool warned_ = false;
};

}  // namespace tealight
