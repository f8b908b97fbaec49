#include "src/text/pipeline.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/unicode.h"

namespace tealight {
namespace {
constexpr size_t kMaxTextBytes = size_t(1) << 30;   // offsets are 32 bits, and byte letters take two bytes each

// Pieces that end an answer; some files forget to mark the first ones as control tokens.
constexpr std::string_view kEnds[] = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_utterance>",
                                      "<turn|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<\uff5cend\u2581of\u2581sentence\uff5c>"};
constexpr std::string_view kControlEnds[] = {"</s>", "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "[e~[", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"};

bool ends_answer(std::string_view piece, const Vocab& vocab, TokenId id) {
  if (piece.size() < 4 || (piece[0] != '<' && piece[0] != '[' && piece[0] != '_')) return false;
  for (std::string_view s : kEnds)
    if (piece == s) return true;
  for (std::string_view s : kControlEnds)
    if (piece == s) return vocab.kind(id) == TokenKind::control;
  return false;
}
}  // namespace

void add_end_pieces(Tokenizer& t, const Vocab& vocab) {
  auto has = [&](std::string_view piece) {
    return std::any_of(t.end_tokens.begin(), t.end_tokens.end(), [&](TokenId id) { return vocab.piece(id) == piece; });
  };
  for (size_t i = 0; i < vocab.size(); i++) {
    const auto id = TokenId(i);
    if (ends_answer(vocab.pieces[i], vocab, id) && std::find(t.end_tokens.begin(), t.end_tokens.end(), id) == t.end_tokens.end())
      t.end_tokens.push_back(id);
  }
  // In formats with channels <|end|> closes one message of an answer, not the answer.
  if ((has("<|return|>") && has("<|call|>")) || (has("<|calls|>") && has("<|flush|>")))
    std::erase_if(t.end_tokens, [&](TokenId id) { return vocab.piece(id) == "<|end|>" && id != t.eos; });
}

void PipelineTokenizer::read_frame() {
  const auto a = std::find(frame.single.begin(), frame.single.end(), kTextA);
  adds_bos = a != frame.single.begin();
  adds_eos = a != frame.single.end() && a + 1 != frame.single.end();
  if (adds_bos && !bos) bos = frame.single.front();
  if (adds_eos && !eos) eos = frame.single.back();
}

const AddedTokens& PipelineTokenizer::added() const {
  std::call_once(once_, [this] {
    if (late_pre_tokenizer) pre_tokenizer = late_pre_tokenizer();
    added_ = std::make_unique<AddedTokens>(list_added(), normalizer);
  });
  return *added_;
}

void PipelineTokenizer::cut(std::string_view text, bool at_start, Cut& cut) const {
  if (text.empty()) return;
  Pieces pieces;
  pieces.at_start = at_start;
  pieces.add(text);
  pre_tokenizer.run(pieces);
  if (cut.words.text.empty()) {
    cut.words = std::move(pieces);
    return;
  }
  for (uint32_t end : pieces.ends) cut.words.ends.push_back(uint32_t(cut.words.text.size()) + end);
  cut.words.text += pieces.text;
}

void PipelineTokenizer::cut_stretch(std::string_view text, bool at_start, bool specials, Cut& c) const {
  const std::string normal = normalizer.run(std::string(text));
  std::vector<AddedTokens::Hit> hits;
  if (added().any_normalized()) added().find_normalized(normal, specials, hits);
  size_t at = 0;
  for (const AddedTokens::Hit& h : hits) {
    cut(std::string_view(normal).substr(at, h.begin - at), at_start && at == 0, c);
    c.found.push_back({c.words.size(), h.id});
    at = h.end;
  }
  cut(std::string_view(normal).substr(at), at_start && at == 0, c);
}

void PipelineTokenizer::encode_text(std::string_view text, const SpecialRanges& where, std::vector<TokenId>& out) const {
  if (text.size() > kMaxTextBytes) fail(Code::request, "text of ", text.size(), " bytes is longer than the limit of ", kMaxTextBytes);
  const bool specials = where.all(text.size());
  std::vector<AddedTokens::Hit> hits;
  added().find_raw(text, where, hits);
  Cut c;
  size_t at = 0;
  for (const AddedTokens::Hit& h : hits) {
    if (h.begin > at) cut_stretch(text.substr(at, h.begin - at), at == 0, specials, c);
    c.found.push_back({c.words.size(), h.id});
    at = h.end;
  }
  if (at < text.size()) cut_stretch(text.substr(at), at == 0, specials, c);
  if (c.found.empty()) {
    if (c.words.size()) model->encode(c.words, out);
    return;
  }
  std::vector<TokenId> ids;
  std::vector<uint32_t> ends{0};
  if (c.words.size()) model->encode(c.words, ids, &ends);
  size_t words = 0;
  const auto put_words = [&](size_t until) {
    out.insert(out.end(), ids.begin() + ends[words], ids.begin() + ends[until]);
    words = until;
  };
  for (const Cut::Found& f : c.found) {
    put_words(f.words_before);
    out.push_back(f.id);
  }
  put_words(c.words.size());
}

std::vector<TokenId> PipelineTokenizer::encode_parts(std::span<const TextPart> parts, bool add_special) const {
  std::string joined;
  size_t bytes = 0;
  for (const TextPart& p : parts) bytes += p.text.size();
  if (parts.size() > 1) joined.reserve(bytes);
  SpecialRanges where;
  std::string_view text;
  auto join = [&](bool lossy) {
    joined.clear();
    where.ranges.clear();
    for (const TextPart& p : parts) {
      const size_t begin = joined.size();
      if (lossy) utf8_append_lossy(joined, p.text);
      else joined += p.text;
      if (!p.parse_special || joined.size() == begin) continue;
      if (!where.ranges.empty() && where.ranges.back().second == begin) where.ranges.back().second = joined.size();
      else where.ranges.push_back({begin, joined.size()});
    }
    text = joined;
  };
  join(false);
  if (!utf8_valid(text)) join(true);

  std::vector<TokenId> out;
  if (!add_special) {
    encode_text(text, where, out);
    return out;
  }
  for (TokenId id : frame.single) {
    if (id == kTextA) encode_text(text, where, out);
    else out.push_back(id);
  }
  return out;
}

std::vector<TokenId> PipelineTokenizer::encode_pair(std::string_view a, std::string_view b, Options o) const {
  const TextPart pa{a, o.parse_special}, pb{b, o.parse_special};
  const std::vector<TokenId> ia = encode_parts({&pa, 1}, false), ib = encode_parts({&pb, 1}, false);
  std::vector<TokenId> out;
  const std::vector<TokenId> plain{kTextA, kTextB};
  for (TokenId id : o.add_special ? frame.pair : plain) {
    if (id == kTextA) out.insert(out.end(), ia.begin(), ia.end());
    else if (id == kTextB) out.insert(out.end(), ib.begin(), ib.end());
    else out.push_back(id);
  }
  return out;
}

void PipelineTokenizer::append_bytes(std::string& out, TokenId id, bool first, bool skip_special) const {
  if (!vocab->contains(id)) return;
  const TokenKind k = vocab->kind(id);
  const bool special = k == TokenKind::control || k == TokenKind::unknown;
  if (special && skip_special) return;
  decoder.append(out, vocab->piece(id), first, special || k == TokenKind::user_defined || k == TokenKind::added);
}

std::string PipelineTokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string out;
  bool first = true;
  for (TokenId id : ids) {
    if (!vocab->contains(id) || (skip_special && vocab->special(id))) continue;
    append_bytes(out, id, first, skip_special);
    first = false;
  }
  if (decoder.step<EndOfWord>() && out.ends_with(' ')) out.pop_back();
  if (utf8_valid(out)) return out;
  std::string valid;
  utf8_append_lossy(valid, out, bad_bytes_singly);
  return valid;
}

}  // namespace tealight
