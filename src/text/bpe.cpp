// Byte-pair encoding: merges by rank, or by the score of the result as SentencePiece does. A word of n characters takes
// O(n log n): a heap holds the candidate pairs, a doubly linked list the symbols.
#include <algorithm>
#include <bit>
#include <cmath>

#include "src/base/error.h"
#include "src/base/hash.h"
#include "src/base/unicode.h"
#include "src/text/token_model.h"

namespace tealight {
namespace {

constexpr uint32_t kNoRank = UINT32_MAX;
constexpr uint32_t kEnd = UINT32_MAX;

// Symbols are stretches of one word.
struct Symbol {
  uint32_t begin, bytes;     // bytes 0: merged into its left neighbour
  uint32_t previous, next;
};
struct Candidate {
  uint32_t rank, left, right;
  uint32_t left_bytes, bytes;
  bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : left > o.left; }  // std heaps: largest first
};

class Merger {
 public:
  // Cuts a word into characters; the last `tail` bytes belong to the last one.
  void start(std::string_view word, size_t tail) {
    word_ = word;
    symbols_.clear();
    heap_.clear();
    for (size_t i = 0; i < word.size();) {
      size_t n = utf8_at(word, i).bytes;
      if (i + n + tail >= word.size()) n = word.size() - i;
      const auto k = uint32_t(symbols_.size());
      symbols_.push_back({uint32_t(i), uint32_t(n), k - 1, k + 1});
      i += n;
    }
    if (!symbols_.empty()) symbols_.front().previous = symbols_.back().next = kEnd;
  }

  // rank(union of two neighbours, bytes of the left one, place of the left one) -> lower goes first, kNoRank: no merge.
  // `by_union`: the rank depends on the union alone.
  template <class Rank>
  void run(Rank rank, bool by_union) {
    auto consider = [&](uint32_t left, uint32_t right) {
      if (left == kEnd || right == kEnd) return;
      const Symbol &l = symbols_[left], &r = symbols_[right];
      const uint32_t k = rank(word_.substr(l.begin, l.bytes + r.bytes), l.bytes, l.begin);
      if (k == kNoRank) return;
      heap_.push_back({k, left, right, l.bytes, l.bytes + r.bytes});
      std::push_heap(heap_.begin(), heap_.end());
    };
    for (uint32_t i = 1; i < symbols_.size(); i++) consider(i - 1, i);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Candidate c = heap_.back();
      heap_.pop_back();
      Symbol &l = symbols_[c.left], &r = symbols_[c.right];
      if (l.bytes == 0 || r.bytes == 0 || l.next != c.right || l.bytes + r.bytes != c.bytes) continue;  // out of date
      if (!by_union && l.bytes != c.left_bytes && rank(word_.substr(l.begin, c.bytes), l.bytes, l.begin) == kNoRank) continue;
      l.bytes += r.bytes;
      r.bytes = 0;
      l.next = r.next;
      if (l.next != kEnd) symbols_[l.next].previous = c.left;
      consider(l.previous, c.left);
      consider(c.left, l.next);
    }
  }

  // f(symbol's text, its place in the word)
  template <class F>
  void each(F f) const {
    for (const Symbol& s : symbols_)
      if (s.bytes) f(word_.substr(s.begin, s.bytes), s.begin);
  }

 private:
  std::string_view word_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

// Appends the byte tokens of `text`; false, and nothing appended, when one is missing.
bool append_bytes(const Vocab& v, const PieceIndex& index, std::string_view text, std::vector<TokenId>& out) {
  const size_t before = out.size();
  for (char c : text) {
    const TokenId id = v.byte_token(index, static_cast<uint8_t>(c));
    if (id < 0) {
      out.resize(before);
      return false;
    }
    out.push_back(id);
  }
  return true;
}

class Bpe : public TokenModel {
 public:
  Bpe(std::shared_ptr<const Vocab> v, std::shared_ptr<const MergeList> m, BpeOptions o)
      : vocab_(std::move(v)), merges_(std::move(m)), o_(std::move(o)) {}

  void encode(const Pieces& pieces, std::vector<TokenId>& out, std::vector<uint32_t>* ends) const override {
    const Tables tables = tables_for(pieces.text);
    Work work;
    for (size_t i = 0; i < pieces.size(); i++) {
      encode_word(tables, pieces[i], work, out);
      if (ends) ends->push_back(uint32_t(out.size()));
    }
  }
  void tables(TokenizerTables& t) const override {
    t[TokenizerTables::merge_begins] = merges_->list.begins();
    t[TokenizerTables::merge_slots] = all_ranks().slots();
  }

 private:
  static constexpr uint32_t kFirst = 1u << 31;   // in a split: the left part opens a word (only with a continuing prefix)

  static uint64_t key(std::string_view both, uint32_t split) { return hash64(both) ^ (split + 1) * 0x9e3779b97f4a7c15u; }

  uint32_t split_of(size_t i, std::string_view merge) const {
    if (!merges_->splits.empty()) return merges_->splits[i];
    return uint32_t(std::min(merge.find(' ', 1), merge.size()));
  }
  // What the words of one text are looked up in.
  struct Tables {
    TextIndex pieces;
    const FlatIndex* ranks = nullptr;
    std::unique_ptr<FlatIndex> some_ranks;     // of the merges whose result occurs in the text
  };
  Tables tables_for(std::string_view text) const {
    Tables t;
    if (!o_.end_of_word.empty() || !o_.continuing_prefix.empty()) t.pieces.all = &vocab_->index();   // pieces are no parts of words
    else t.pieces = vocab_->index_for(text);
    if (t.pieces.all) {
      t.ranks = &all_ranks();
    } else {
      t.some_ranks = std::make_unique<FlatIndex>(ranks_in(*t.pieces.text));
      t.ranks = t.some_ranks.get();
    }
    return t;
  }
  const FlatIndex& all_ranks() const {
    std::call_once(once_, [this] {
      if (merges_->slots.empty()) build();
      else ranks_.use(merges_->slots, merges_->list.size(), "the merges' index");
    });
    return ranks_;
  }
  void build() const {
    ranks_.fill(merges_->list.size(), [&](size_t i, uint64_t& hash) { return hash_merge(i, hash); });
  }
  bool hash_merge(size_t i, uint64_t& hash) const {
    const std::string_view m = merges_->list[i];
    const uint32_t split = split_of(i, m), left = split & ~kFirst;
    if (left >= m.size()) return false;
    std::string both(m.substr(0, left));
    both += m.substr(left + 1);
    hash = key(both, split);
    return true;
  }
  FlatIndex ranks_in(const ShortText& text) const {
    std::vector<uint32_t> found;
    const char* end = merges_->list.end();
    for (size_t i = 0; i < merges_->list.size(); i++) {
      const std::string_view m = merges_->list[i];
      const uint32_t left = split_of(i, m) & ~kFirst;
      if (left >= m.size() || m.size() < 2) continue;
      const uint64_t before = ShortText::head(m.data(), left, end), after = ShortText::head(m.data() + left + 1, m.size() - left - 1, end);
      const uint64_t head = left == 0 ? after : left < 8 ? before | after << 8 * left : before;
      if (text.has(head, m.size() - 1, [&](std::string_view part) {
            return part.substr(0, left) == m.substr(0, left) && part.substr(left) == m.substr(left + 1);
          }))
        found.push_back(uint32_t(i));
    }
    FlatIndex index;
    index.reserve(merges_->list.size(), found.size());
    uint64_t hash;
    for (uint32_t i : found)
      if (hash_merge(i, hash)) index.insert(hash, i);
    return index;
  }
  uint32_t rank(const Tables& t, std::string_view both, uint32_t left, uint32_t begin) const {
    const uint32_t split = left | (begin == 0 && !o_.continuing_prefix.empty() ? kFirst : 0);
    return t.ranks->find(key(both, split), [&](uint32_t i) {
      const std::string_view m = merges_->list[i];
      return m.size() == both.size() + 1 && split_of(i, m) == split && m.substr(0, left) == both.substr(0, left) &&
             m.substr(left + 1) == both.substr(left);
    });
  }

  struct Work {
    Merger merger;
    std::string buffer;
  };
  void encode_word(const Tables& t, std::string_view word, Work& work, std::vector<TokenId>& out) const {
    if (o_.ignore_merges)
      if (const TokenId id = vocab_->find_text(*t.pieces, word); id >= 0) {
        out.push_back(id);
        return;
      }
    const bool drop = o_.unknown < 0 && !o_.byte_fallback;
    uint32_t shift = 0;                    // 1: the character that opened the word is gone
    if (drop || !o_.end_of_word.empty()) {
      work.buffer.clear();
      if (drop) shift = append_known(t, work.buffer, word);
      else work.buffer = word;
      if (work.buffer.empty()) return;
      work.buffer += o_.end_of_word;
      word = work.buffer;
    }
    work.merger.start(word, o_.end_of_word.size());
    work.merger.run([&](std::string_view both, uint32_t left, uint32_t begin) { return rank(t, both, left, begin + shift); }, false);
    bool after_unknown = false;
    work.merger.each([&](std::string_view s, uint32_t begin) { after_unknown = append(t, s, begin + shift, after_unknown, out); });
  }

  TokenId find(const Tables& t, std::string_view s, uint32_t begin) const {
    if (begin == 0 || o_.continuing_prefix.empty()) return vocab_->find_text(*t.pieces, s);
    return vocab_->find_text(*t.pieces, o_.continuing_prefix + std::string(s));
  }
  // The characters of a word that are tokens: the others vanish before anything is merged. 1 if the first one does.
  uint32_t append_known(const Tables& t, std::string& to, std::string_view word) const {
    uint32_t first_gone = 0;
    for (size_t i = 0; i < word.size();) {
      const size_t n = utf8_at(word, i).bytes;
      std::string c(word.substr(i, n));
      if (i + n == word.size()) c += o_.end_of_word;
      if (find(t, c, uint32_t(i)) >= 0) to += word.substr(i, n);
      else if (i == 0) first_gone = 1;
      i += n;
    }
    return first_gone;
  }
  // Appends one symbol; true when it was unknown.
  bool append(const Tables& t, std::string_view s, uint32_t begin, bool after_unknown, std::vector<TokenId>& out) const {
    if (const TokenId id = find(t, s, begin); id >= 0) {
      out.push_back(id);
      return false;
    }
    if (o_.byte_fallback && append_bytes(*vocab_, *t.pieces, s, out)) return false;
    if (const size_t n = utf8_at(s, 0).bytes; n < s.size() && o_.end_of_word.empty()) {
      // A merge made what is no token (only where merges are not checked): its characters instead.
      for (size_t i = 0; i < s.size(); i += utf8_at(s, i).bytes)
        after_unknown = append(t, s.substr(i, utf8_at(s, i).bytes), begin + uint32_t(i), after_unknown, out);
      return after_unknown;
    }
    if (o_.unknown >= 0 && !(after_unknown && o_.fuse_unknown)) out.push_back(o_.unknown);
    return true;
  }

  std::shared_ptr<const Vocab> vocab_;
  std::shared_ptr<const MergeList> merges_;
  BpeOptions o_;
  mutable std::once_flag once_;
  mutable FlatIndex ranks_;
};

class SentencePieceBpe : public TokenModel {
 public:
  SentencePieceBpe(std::shared_ptr<const Vocab> v, TokenId unknown) : vocab_(std::move(v)), unknown_(unknown) {}

  void encode(const Pieces& pieces, std::vector<TokenId>& out, std::vector<uint32_t>* ends) const override {
    Merger merger;
    const TextIndex index = vocab_->index_for(pieces.text);
    const size_t longest = index->facts->longest[256];
    auto rank = [&](std::string_view both, uint32_t, uint32_t) {
      const TokenId id = both.size() > longest ? -1 : vocab_->find_text(*index, both);
      return id < 0 ? kNoRank : order(vocab_->score(id));
    };
    for (size_t i = 0; i < pieces.size(); i++) {
      for (std::string_view rest = pieces[i]; !rest.empty();) {
        const std::string_view chunk = rest.substr(0, rest.size() > kLong && marks_lead() ? first_words(rest) : rest.size());
        merger.start(chunk, 0);
        merger.run(rank, true);
        merger.each([&](std::string_view s, uint32_t) {
          if (const TokenId id = vocab_->find_text(*index, s); id >= 0) out.push_back(id);
          else if (!append_bytes(*vocab_, *index, s, out) && unknown_ >= 0) out.push_back(unknown_);
        });
        rest.remove_prefix(chunk.size());
      }
      if (ends) ends->push_back(uint32_t(out.size()));
    }
  }

 private:
  static constexpr size_t kLong = 2048;

  // Where no piece has a mark after another character, no merge goes across the border before a word, and a long text may be
  // merged word by word: the same ids, without a heap of all its pairs.
  bool marks_lead() const {
    std::call_once(once_, [this] {
      const PieceFacts::Answer known = vocab_->index().facts->marks_lead;
      marks_lead_ = known == PieceFacts::unknown ? vocab_->marks_lead() : known == PieceFacts::yes;
    });
    return marks_lead_;
  }
  // Bytes of about kLong that end before a word, or of all.
  static size_t first_words(std::string_view s) {
    for (size_t at = kLong; (at = s.find(kSpaceMark, at)) != s.npos; at += kSpaceMark.size())
      if (!s.substr(0, at).ends_with(kSpaceMark)) return at;
    return s.size();
  }

  // Falls as the score rises.
  static uint32_t order(float score) {
    if (std::isnan(score)) return kNoRank - 1;
    const auto bits = std::bit_cast<uint32_t>(score == 0 ? 0.0f : score);
    const uint32_t rising = bits >> 31 ? ~bits : bits | 0x80000000u;
    return ~rising;
  }

  std::shared_ptr<const Vocab> vocab_;
  TokenId unknown_;
  mutable std::once_flag once_;
  mutable bool marks_lead_ = true;
};

}  // namespace

std::unique_ptr<TokenModel> make_bpe(std::shared_ptr<const Vocab> vocab, std::shared_ptr<const MergeList> merges, BpeOptions options) {
  return std::make_unique<Bpe>(std::move(vocab), std::move(merges), std::move(options));
}
std::unique_ptr<TokenModel> make_sentencepiece_bpe(std::shared_ptr<const Vocab> vocab, TokenId unknown) {
  return std::make_unique<SentencePieceBpe>(std::move(vocab), unknown);
}

}  // namespace tealight
