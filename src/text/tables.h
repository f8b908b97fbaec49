// What a tokenizer learns by walking its vocabulary, as arrays of 32-bit words that a packed file holds ready to map.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "src/text/vocab.h"

namespace tealight {

// Whatever they hold, no use of them reads outside of the arrays or runs on for ever: wrong tables give wrong tokens.
struct TokenizerTables {
  enum Table : uint32_t {
    piece_begins,                // StringList of the pieces
    piece_slots,                 // FlatIndex of the pieces, without empty ones
    piece_facts,                 // PieceFacts
    merge_begins, merge_slots,   // the same of BPE's merges
    added,                       // ids of the tokens that are looked for before anything else
    ends,                        // Tokenizer::end_tokens
    count,
  };
  std::span<const uint32_t> of[count];
  std::span<const uint32_t>& operator[](Table t) { return of[t]; }
  const std::span<const uint32_t>& operator[](Table t) const { return of[t]; }
};

// The tables of a tokenizer that came from a GGUF file. Some are views into it, the others point into this.
struct MadeTables {
  TokenizerTables tables;
  PieceFacts facts;
  std::vector<uint32_t> added, ends;
};
std::unique_ptr<MadeTables> make_tables(const Tokenizer& t);

}  // namespace tealight
