// The tokenizer that both file formats are read into: find added tokens, normalize, cut, look pieces up, frame.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/text/added_tokens.h"
#include "src/text/normalizer.h"
#include "src/text/pretokenizer.h"
#include "src/text/token_decoder.h"
#include "src/text/token_model.h"
#include "src/text/tokenizer.h"
#include "src/text/vocab.h"

namespace tealight {

// What encode() puts around one text or two: ids, kTextA, kTextB.
constexpr TokenId kTextA = -1, kTextB = -2;
struct Frame {
  std::vector<TokenId> single{kTextA}, pair{kTextA, kTextB};
};

class PipelineTokenizer : public Tokenizer {
 public:
  std::shared_ptr<Vocab> vocab;
  Normalizer normalizer;
  mutable PreTokenizer pre_tokenizer;
  std::unique_ptr<TokenModel> model;
  TokenDecoder decoder;
  Frame frame;
  // Called once, when text is first encoded.
  std::function<std::vector<AddedToken>()> list_added;
  std::function<PreTokenizer()> late_pre_tokenizer;      // may be empty: then pre_tokenizer holds

  // Sets bos, eos, adds_bos and adds_eos from the frame; to be called when it is complete.
  void read_frame();

  std::vector<TokenId> encode_parts(std::span<const TextPart> parts, bool add_special) const override;
  std::vector<TokenId> encode_pair(std::string_view a, std::string_view b, Options o) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override;
  void append_bytes(std::string& out, TokenId id, bool first, bool skip_special) const override;
  size_t size() const override { return vocab->size(); }
  std::string_view piece(TokenId id) const override { return vocab->contains(id) ? vocab->piece(id) : std::string_view(); }
  std::optional<TokenId> find(std::string_view piece) const override { return vocab->find(piece); }
  bool is_special(TokenId id) const override { return vocab->contains(id) && vocab->special(id); }

 private:
  void encode_text(std::string_view text, const SpecialRanges& where, std::vector<TokenId>& out) const;
  // A text cut into words, and the added tokens between them.
  struct Cut {
    Pieces words;
    struct Found {
      size_t words_before;
      TokenId id;
    };
    std::vector<Found> found;
  };
  void cut(std::string_view text, bool at_start, Cut& cut) const;
  void cut_stretch(std::string_view text, bool at_start, bool specials, Cut& cut) const;
  const AddedTokens& added() const;

  mutable std::once_flag once_;
  mutable std::unique_ptr<AddedTokens> added_;
};

// Ids of the pieces that are known to end an answer ("<|im_end|>", "<|eot_id|>", ...), in the order of the vocabulary.
void add_end_pieces(Tokenizer& t, const Vocab& vocab);

}  // namespace tealight
