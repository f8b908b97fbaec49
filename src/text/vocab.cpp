#include "src/text/vocab.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "src/base/error.h"
#include "src/base/hash.h"

namespace tealight {
size_t FlatIndex::slots_for(size_t n) { return std::bit_ceil(std::max<size_t>(2 * n, 16)); }

void FlatIndex::reserve(size_t n, size_t entries) {
  owned_.assign(slots_for(entries), 0);
  slots_ = owned_.data();
  mask_ = owned_.size() - 1;
  low_ = uint32_t(std::bit_ceil(n + 1) - 1);
  limit_ = uint32_t(n);
}

void FlatIndex::use(std::span<const uint32_t> slots, size_t n, std::string_view what) {
  if (n >= UINT32_MAX / 2 || slots.size() != slots_for(n)) fail(Code::tokenizer, what, ": a table of ", slots.size(), " slots for ", n, " entries");
  owned_.clear();
  slots_ = slots.data();
  mask_ = slots.size() - 1;
  low_ = uint32_t(std::bit_ceil(n + 1) - 1);
  limit_ = uint32_t(n);
}

void FlatIndex::insert(uint64_t hash, uint32_t value) {
  size_t i = hash & mask_;
  for (size_t probes = 0; owned_[i] != 0; i = (i + 1) & mask_)
    if (++probes > kMaxProbes) fail(Code::tokenizer, "vocabulary: more than ", kMaxProbes, " entries collide in the index");
  owned_[i] = tag_of(hash) | (value + 1);
}

StringList::StringList(std::span<const std::byte> data, uint64_t count, std::string_view what) : data_(data) {
  if (count > data.size() / 8 || data.size() > UINT32_MAX)
    fail(Code::tokenizer, what, ": ", count, " strings in ", data.size(), " bytes; they must fit, and into 4 GiB");
  owned_.resize(size_t(count));
  size_t at = 0;
  for (uint32_t& b : owned_) {
    uint64_t n = 0;
    if (data.size() - at >= 8) std::memcpy(&n, data.data() + at, 8);
    if (data.size() - at < 8 || n > data.size() - at - 8) fail(Code::tokenizer, what, ": a string passes the end of the array");
    b = uint32_t(at);
    at += 8 + size_t(n);
  }
  begins_ = owned_;
}

void StringList::append(std::string& block, std::string_view s) {
  const uint64_t n = s.size();
  block.append(reinterpret_cast<const char*>(&n), 8);
  block += s;
}

int byte_of_piece(std::string_view p) {
  if (p.size() != 6 || !p.starts_with("<0x") || p[5] != '>') return -1;
  int v = 0;
  for (char c : p.substr(3, 2)) {
    if (c >= '0' && c <= '9') v = v * 16 + (c - '0');
    else if ((c | 32) >= 'a' && (c | 32) <= 'f') v = v * 16 + ((c | 32) - 'a' + 10);
    else return -1;
  }
  return v;
}

TokenKind Vocab::kind(TokenId id) const {
  if (!control.empty() && std::binary_search(control.begin(), control.end(), id)) return TokenKind::control;
  if (!own_kinds.empty()) return own_kinds[size_t(id)];
  if (!kinds) return TokenKind::normal;
  int32_t k;
  std::memcpy(&k, kinds + 4 * size_t(id), 4);
  return k >= 0 && k <= int(TokenKind::byte) ? static_cast<TokenKind>(k) : TokenKind::undefined;
}

float Vocab::score(TokenId id) const {
  float s = 0;
  if (scores) std::memcpy(&s, scores + 4 * size_t(id), 4);
  return s;
}

const PieceIndex& Vocab::index() const {
  std::call_once(once_, [this] {
    auto index = std::make_unique<PieceIndex>();
    if (ready_.facts) {
      index->table.use(ready_.slots, size(), "the vocabulary's index");
      index->facts = ready_.facts;
    } else {
      walk(*index);
    }
    index_ = std::move(index);
    short_texts = 0;
  });
  return *index_;
}

TextIndex Vocab::index_for(std::string_view text) const {
  TextIndex t;
  if (text.size() <= ShortText::kMostBytes && short_texts.load(std::memory_order_relaxed) > 0 && short_texts.fetch_sub(1) > 0) {
    t.text = std::make_unique<ShortText>(text);
    if (!t.text->repetitive()) {
      walk(t.some, *t.text);
      return t;
    }
  }
  t.all = &index();
  return t;
}

namespace {

// An index without pieces yet. A fact is added for each.
PieceFacts& new_facts(PieceIndex& index) {
  index.own = std::make_unique<PieceFacts>();
  index.facts = index.own.get();
  std::fill(std::begin(index.own->bytes), std::end(index.own->bytes), -1);
  return *index.own;
}

void note_length(PieceFacts& f, std::string_view p) {
  f.longest[256] = std::max(f.longest[256], uint32_t(p.size()));
  if (p.size() > PieceFacts::kLongest) return;
  uint32_t& longest = f.longest[uint8_t(p[0])];
  longest = std::max(longest, uint32_t(p.size()));
  f.lengths[p.size() / 32] |= 1u << p.size() % 32;
}

void note_byte(PieceFacts& f, std::string_view p, size_t id) {
  if (const int b = p[0] == '<' ? byte_of_piece(p) : -1; b >= 0 && f.bytes[b] < 0) f.bytes[b] = TokenId(id);
}

}  // namespace

void Vocab::walk(PieceIndex& index) const {
  PieceFacts& f = new_facts(index);
  index.table.fill(size(), [&](size_t i, uint64_t& hash) {
    const std::string_view p = pieces[i];
    if (p.empty()) return false;
    hash = hash64(p);
    note_length(f, p);
    note_byte(f, p, i);
    return true;
  });
}

void Vocab::walk(PieceIndex& index, const ShortText& text) const {
  PieceFacts& f = new_facts(index);
  std::vector<uint32_t> found;
  for (size_t i = 0; i < size(); i++) {
    const std::string_view p = pieces[i];
    if (p.empty()) continue;
    note_byte(f, p, i);
    if (!text.has(ShortText::head(p.data(), p.size(), pieces.end()), p.size(), [&](std::string_view part) { return part == p; })) continue;
    note_length(f, p);
    found.push_back(uint32_t(i));
  }
  index.table.reserve(size(), found.size());
  for (uint32_t i : found) index.table.insert(hash64(pieces[i]), i);
}

bool Vocab::marks_lead() const {
  for (size_t i = 0; i < size(); i++) {
    std::string_view p = pieces[i];
    while (p.starts_with(kSpaceMark)) p.remove_prefix(kSpaceMark.size());
    if (p.find(kSpaceMark) != p.npos) return false;
  }
  return true;
}

std::optional<TokenId> Vocab::find(std::string_view piece) const {
  const uint32_t v = index().table.find(hash64(piece), [&](uint32_t i) { return pieces[i] == piece; });
  return v == UINT32_MAX ? std::nullopt : std::optional<TokenId>(TokenId(v));
}

TokenId Vocab::find_text(const PieceIndex& index, std::string_view piece) const {
  const uint32_t v = index.table.find(hash64(piece), [&](uint32_t i) { return pieces[i] == piece; });
  if (v == UINT32_MAX) return -1;
  const TokenKind k = kind(TokenId(v));
  const bool never = k == TokenKind::control || k == TokenKind::unknown || k == TokenKind::byte || k == TokenKind::added;
  return never ? -1 : TokenId(v);
}

}  // namespace tealight
