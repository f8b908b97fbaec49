#include <algorithm>
#include <limits>

#include "src/base/unicode.h"
#include "src/text/token_model.h"

namespace tealight {
namespace {

class Unigram : public TokenModel {
 public:
  Unigram(std::shared_ptr<const Vocab> v, UnigramOptions o) : vocab_(std::move(v)), o_(std::move(o)) {}

  void encode(const Pieces& pieces, std::vector<TokenId>& out, std::vector<uint32_t>* ends) const override {
    const TextIndex index = vocab_->index_for(pieces.text);
    std::vector<Node> best;
    for (size_t i = 0; i < pieces.size(); i++) {
      search(*index, pieces[i], best);
      emit(*index, pieces[i], best, out);
      if (ends) ends->push_back(uint32_t(out.size()));
    }
  }

 private:
  // The best way to reach a byte of the text: the token that ends there, where it begins, and the score of the path.
  struct Node {
    double score = -std::numeric_limits<double>::infinity();
    uint32_t begin = UINT32_MAX;
    TokenId id = -1;
    void offer(double s, uint32_t from, TokenId token) {
      if (begin == UINT32_MAX || s > score) *this = {s, from, token};
    }
  };

  double score(TokenId id) const {
    if (!o_.scores.empty()) return o_.scores[size_t(id)];
    return vocab_->kind(id) == TokenKind::user_defined ? 0.0 : double(vocab_->score(id));
  }

  void search(const PieceIndex& index, std::string_view text, std::vector<Node>& best) const {
    best.assign(text.size() + 1, Node());
    best[0] = {0, 0, -1};
    const PieceFacts& facts = *index.facts;
    for (size_t i = 0; i < text.size();) {
      const double before = best[i].score;
      const size_t first = utf8_at(text, i).bytes, limit = std::min(text.size() - i, size_t(facts.longest[static_cast<uint8_t>(text[i])]));
      bool single = false;
      for (size_t n = first; n <= limit; n += utf8_at(text, i + n).bytes) {
        const TokenId id = facts.has_length(n) ? vocab_->find_text(index, text.substr(i, n)) : -1;
        if (id >= 0) {
          best[i + n].offer(before + score(id), uint32_t(i), id);
          single |= n == first;
        }
        if (i + n == text.size()) break;
      }
      if (!single) best[i + first].offer(before + o_.unknown_score, uint32_t(i), -1);
      i += first;
    }
  }

  void emit(const PieceIndex& index, std::string_view text, const std::vector<Node>& best, std::vector<TokenId>& out) const {
    std::vector<uint32_t> ends;
    for (auto at = uint32_t(text.size()); at > 0; at = best[at].begin) ends.push_back(at);
    bool after_unknown = false;
    for (size_t k = ends.size(); k-- > 0;) {
      const Node& n = best[ends[k]];
      if (n.id >= 0) {
        out.push_back(n.id);
        after_unknown = false;
      } else if (!o_.byte_fallback || !bytes(index, text.substr(n.begin, ends[k] - n.begin), out)) {
        if (!after_unknown && o_.unknown >= 0) out.push_back(o_.unknown);
        after_unknown = true;
      }
    }
  }
  bool bytes(const PieceIndex& index, std::string_view s, std::vector<TokenId>& out) const {
    for (char c : s)
      if (vocab_->byte_token(index, static_cast<uint8_t>(c)) < 0) return false;
    for (char c : s) out.push_back(vocab_->byte_token(index, static_cast<uint8_t>(c)));
    return true;
  }

  std::shared_ptr<const Vocab> vocab_;
  UnigramOptions o_;
};

}  // namespace

std::unique_ptr<TokenModel> make_unigram(std::shared_ptr<const Vocab> vocab, UnigramOptions options) {
  return std::make_unique<Unigram>(std::move(vocab), std::move(options));
}

}  // namespace tealight
