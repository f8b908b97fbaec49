#include "src/text/added_tokens.h"

#include <algorithm>

#include "src/base/hash.h"

namespace tealight {
namespace {

// Joiners count as parts of words here.
bool in_word(uint32_t c) { return is_word(c) || c == 0x200c || c == 0x200d; }
bool word_before(std::string_view s, size_t i) { return i > 0 && in_word(utf8_at(s, utf8_before(s, i)).c); }
bool word_after(std::string_view s, size_t i) { return i < s.size() && in_word(utf8_at(s, i).c); }

size_t spaces_before(std::string_view s, size_t i, size_t floor) {
  while (i > floor) {
    const size_t at = utf8_before(s, i);
    if (!is_space(utf8_at(s, at).c)) break;
    i = at;
  }
  return i;
}
size_t spaces_after(std::string_view s, size_t i) {
  while (i < s.size()) {
    const Utf8Char u = utf8_at(s, i);
    if (!is_space(u.c)) break;
    i += u.bytes;
  }
  return i;
}

}  // namespace

bool SpecialRanges::allow(size_t begin, size_t end) const {
  auto r = std::upper_bound(ranges.begin(), ranges.end(), begin, [](size_t v, const auto& range) { return v < range.second; });
  return r != ranges.end() && begin >= r->first && end <= r->second;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer) {
  for (AddedToken& t : tokens) {
    if (t.content.empty()) continue;
    if (t.normalized) {
      AddedToken n = t;
      n.content = normalizer.run(t.content);
      if (!n.content.empty()) normalized_.entries.push_back(std::move(n));
    }
    // A special token that is looked for after normalization is found before it where only a part of the text may
    // hold special tokens, as normalized text no longer tells whose it is.
    if (!t.normalized || t.special) raw_.entries.push_back(std::move(t));
  }
  raw_.build();
  normalized_.build();
}

void AddedTokens::Set::build() {
  index.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); i++) {
    const std::string& c = entries[i].content;
    index.insert(hash64(c), uint32_t(i));
    std::vector<uint32_t>& n = lengths[static_cast<uint8_t>(c[0])];
    if (std::find(n.begin(), n.end(), c.size()) == n.end()) n.push_back(uint32_t(c.size()));
  }
  for (std::vector<uint32_t>& n : lengths) std::sort(n.rbegin(), n.rend());
}

template <class May>
void AddedTokens::Set::find(std::string_view text, May may, std::vector<Hit>& out) const {
  out.clear();
  if (entries.empty()) return;
  for (size_t i = 0; i < text.size();) {
    const AddedToken* found = nullptr;
    for (uint32_t n : lengths[static_cast<uint8_t>(text[i])]) {
      if (n > text.size() - i) continue;
      const std::string_view s = text.substr(i, n);
      const uint32_t k = index.find(hash64(s), [&](uint32_t e) { return entries[e].content == s; });
      if (k != UINT32_MAX && may(entries[k], i, i + n)) {
        found = &entries[k];
        break;
      }
    }
    if (!found) {
      i++;
      continue;
    }
    size_t begin = i, end = i + found->content.size();
    i = end;
    if (found->single_word && (word_before(text, begin) || word_after(text, end))) continue;
    // The white space that the token before took is no longer there to be taken.
    const size_t floor = out.empty() ? 0 : out.back().end;
    begin = std::max(found->lstrip ? spaces_before(text, begin, floor) : begin, floor);
    end = std::max(end, floor);
    if (found->rstrip) end = spaces_after(text, end);
    out.push_back({begin, end, found->id});
  }
}

void AddedTokens::find_raw(std::string_view text, const SpecialRanges& where, std::vector<Hit>& out) const {
  const bool all = where.all(text.size());
  raw_.find(text, [&](const AddedToken& t, size_t begin, size_t end) {
    if (all) return !t.normalized;
    return !t.special || where.allow(begin, end);
  }, out);
}

void AddedTokens::find_normalized(std::string_view text, bool specials, std::vector<Hit>& out) const {
  normalized_.find(text, [&](const AddedToken& t, size_t, size_t) { return !t.special || specials; }, out);
}

}  // namespace tealight
