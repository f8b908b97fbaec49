#include "src/text/tokenizer.h"

#include <algorithm>

#include "src/base/unicode.h"

namespace tealight {

std::vector<TokenId> Tokenizer::encode(std::string_view text, Options o) const {
  const TextPart part{text, o.parse_special};
  return encode_parts({&part, 1}, o.add_special);
}

std::vector<TokenId> encode_prompt(const Tokenizer& t, std::span<const TextPart> parts) {
  std::vector<TokenId> ids = t.encode_parts(parts, true);
  if (!t.adds_bos) return ids;
  // What is added before a text is what an empty text begins with.
  const std::vector<TokenId> empty = t.encode_parts({}, true);
  size_t n = empty.size();
  if (t.adds_eos)
    while (n > 1 && empty[n - 1] == t.eos) n--;
  const auto added = ids.begin() + ptrdiff_t(n);
  if (ids.size() >= 2 * n && std::equal(ids.begin(), added, added)) ids.erase(ids.begin(), added);
  return ids;
}

std::string_view StreamDecoder::push(TokenId id) {
  out_.clear();
  const size_t before = pending_.size();
  t_->append_bytes(pending_, id, first_, skip_special_);
  if (pending_.size() > before || !(skip_special_ && t_->is_special(id))) first_ = false;
  size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Char u = utf8_at(pending_, at);
    if (u.cut) break;                          // the rest of the character may come
    const size_t n = u.ok || !t_->bad_bytes_singly ? u.bytes : 1;
    if (u.ok) out_.append(pending_, at, n);
    else out_ += "\xef\xbf\xbd";
    at += n;
  }
  pending_.erase(0, at);
  return out_;
}

std::string_view StreamDecoder::finish() {
  out_.clear();
  utf8_append_lossy(out_, pending_, t_->bad_bytes_singly);
  pending_.clear();
  return out_;
}

}  // namespace tealight
