#include <algorithm>

#include "src/base/unicode.h"
#include "src/text/token_model.h"

namespace tealight {
namespace {

class WordPiece : public TokenModel {
 public:
  WordPiece(std::shared_ptr<const Vocab> v, WordPieceOptions o) : vocab_(std::move(v)), o_(std::move(o)) {}

  void encode(const Pieces& pieces, std::vector<TokenId>& out, std::vector<uint32_t>* ends) const override {
    std::string word;
    for (size_t i = 0; i < pieces.size(); i++) {
      const size_t before = out.size();
      word = o_.word_prefix;
      word += pieces[i];
      if (!split(word, chars(pieces[i]), out)) {
        out.resize(before);
        if (o_.unknown >= 0) out.push_back(o_.unknown);
      }
      if (ends) ends->push_back(uint32_t(out.size()));
    }
  }

 private:
  static size_t chars(std::string_view s) {
    return size_t(std::count_if(s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  }

  bool split(std::string_view word, size_t n_chars, std::vector<TokenId>& out) const {
    const PieceIndex& index = vocab_->index();
    if (o_.whole_words) {
      const TokenId id = vocab_->find_text(index, word);
      if (id >= 0) out.push_back(id);
      return id >= 0;
    }
    if (n_chars > o_.max_chars) return false;
    const PieceFacts& facts = *index.facts;
    const size_t longest = std::min<size_t>(facts.longest[256], kLongestPiece);
    std::string inner;
    for (size_t at = 0; at < word.size();) {
      const std::string& prefix = at ? o_.continuing_prefix : empty_;
      const size_t room = longest - std::min(longest, prefix.size());
      size_t end = std::min(word.size(), at + room);
      while (end > at && end < word.size() && (static_cast<unsigned char>(word[end]) & 0xc0) == 0x80) end--;
      TokenId id = -1;
      for (; end > at; end = utf8_before(word, end)) {
        if (!facts.has_length(prefix.size() + end - at)) continue;
        if (prefix.empty()) {
          id = vocab_->find_text(index, word.substr(at, end - at));
        } else {
          inner = prefix;
          inner += word.substr(at, end - at);
          id = vocab_->find_text(index, inner);
        }
        if (id >= 0) break;
      }
      if (id < 0) return false;
      out.push_back(id);
      at = end;
    }
    return true;
  }

  std::shared_ptr<const Vocab> vocab_;
  WordPieceOptions o_;
  const std::string empty_;
};

}  // namespace

std::unique_ptr<TokenModel> make_wordpiece(std::shared_ptr<const Vocab> vocab, WordPieceOptions options) {
  return std::make_unique<WordPiece>(std::move(vocab), std::move(options));
}

}  // namespace tealight
