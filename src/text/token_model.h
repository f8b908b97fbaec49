// From the pieces of a text to token ids: the models of subword vocabularies.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/text/pieces.h"
#include "src/text/tables.h"
#include "src/text/vocab.h"

namespace tealight {

// Models that try every piece that might begin at a character try none longer than this many bytes, so that one monstrous
// piece does not make them quadratic.
constexpr size_t kLongestPiece = PieceFacts::kLongest;

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of each piece and, where `ends` is given, to that how many `out` has after each. Safe to call from several
  // threads.
  virtual void encode(const Pieces& pieces, std::vector<TokenId>& out, std::vector<uint32_t>* ends = nullptr) const = 0;
  // Sets the tables that it has made of its own data, for a packed file; they live as long as the model.
  virtual void tables(TokenizerTables&) const {}
};

// Byte-pair merges in the order of a list.
struct BpeOptions {
  bool byte_fallback = false;      // an unknown character becomes its <0xXX> tokens
  bool fuse_unknown = false;       // neighbouring unknown characters become one token
  bool ignore_merges = false;      // a piece that is a token needs no merges
  std::string continuing_prefix;   // what pieces inside a word begin with in the vocabulary
  std::string end_of_word;         // what the last piece of a word ends with
  TokenId unknown = -1;            // -1: unknown characters are dropped
};
struct MergeList {
  StringList list;                 // "left right"
  std::vector<uint32_t> splits;    // bytes of each left part; empty: up to the first space that is not the first byte
  std::string owned;               // the strings, when they are not in a file
  std::span<const uint32_t> slots; // the index from both parts to the merge, where a file has it
};
std::unique_ptr<TokenModel> make_bpe(std::shared_ptr<const Vocab> vocab, std::shared_ptr<const MergeList> merges, BpeOptions options);

// SentencePiece's BPE: of all neighbours whose union is a token, the ones of the highest score are joined first.
std::unique_ptr<TokenModel> make_sentencepiece_bpe(std::shared_ptr<const Vocab> vocab, TokenId unknown);

// The most probable segmentation (T. Kudo, "Subword regularization", 2018, section 3.1).
struct UnigramOptions {
  std::vector<double> scores;      // log probability of each id; empty: the vocabulary's scores, 0 for tokens of the user
  double unknown_score = 0;        // of a character that is no token
  TokenId unknown = -1;
  bool byte_fallback = false;
};
std::unique_ptr<TokenModel> make_unigram(std::shared_ptr<const Vocab> vocab, UnigramOptions options);

// The longest token first, from the left.
struct WordPieceOptions {
  std::string word_prefix;         // put before each word
  std::string continuing_prefix;   // what pieces inside a word begin with in the vocabulary
  size_t max_chars = 100;          // longer words are unknown
  TokenId unknown = -1;
  bool whole_words = false;        // WordLevel: a word is a token or unknown
};
std::unique_ptr<TokenModel> make_wordpiece(std::shared_ptr<const Vocab> vocab, WordPieceOptions options);

}  // namespace tealight
