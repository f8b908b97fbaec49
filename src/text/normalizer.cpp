#include "src/text/normalizer.h"

#include <algorithm>
#include <cstring>

#include "src/base/error.h"

namespace tealight {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581
constexpr int kMaxDepth = 16;
constexpr size_t kMaxKey = 1024;   // of a rule of a CharsMap: its units may lead in a circle

template <class F>
void each_char(std::string_view s, F f) {
  for (size_t i = 0; i < s.size();) {
    const Utf8Char u = utf8_at(s, i);
    f(u.c, s.substr(i, u.bytes));
    i += u.bytes;
  }
}

std::string without(std::string_view s, uint32_t categories) {
  std::string out;
  out.reserve(s.size());
  each_char(s, [&](uint32_t c, std::string_view bytes) {
    if (c < 128 || !in_categories(c, categories)) out += bytes;
  });
  return out;
}

std::string lowered(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  each_char(s, [&](uint32_t c, std::string_view) { append_lower(out, c); });
  return out;
}

// The first character of each one's canonical decomposition; marks that stand alone go.
std::string bases(std::string_view s) {
  std::string out;
  each_char(s, [&](uint32_t c, std::string_view bytes) {
    const std::string d = c < 128 ? std::string(bytes) : normalize(bytes, NormalForm::nfd);
    const Utf8Char first = utf8_at(d, 0);
    if (c < 128 || !in_categories(first.c, category_mask("M"))) out.append(d, 0, first.bytes);
  });
  return out;
}

std::string run_step(const NormalForms& n, std::string s) { return normalize(s, n.form); }
std::string run_step(const Lowercase&, std::string s) { return lowered(s); }
std::string run_step(const StripAccents&, std::string s) { return without(s, category_mask("M")); }

std::string run_step(const NmtCleanup&, std::string s) {
  std::string out;
  each_char(s, [&](uint32_t c, std::string_view bytes) {
    if ((c >= 1 && c <= 8) || c == 11 || (c >= 14 && c <= 31) || c == 0x7f || c == 0x8f || c == 0x9f) return;
    const bool space = c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200b && c <= 0x200f) || c == 0x2028 ||
                       c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
    out += space ? std::string_view(" ") : bytes;
  });
  return out;
}

std::string run_step(const BytesToLetters&, std::string s) {
  std::string out;
  for (char c : s) append_byte_letter(out, static_cast<uint8_t>(c));
  return out;
}

std::string run_step(const Prepend& p, std::string s) { return s.empty() ? s : p.text + s; }

std::string run_step(const StripSpaces& p, std::string s) {
  size_t begin = 0, end = s.size();
  while (p.left && begin < end) {
    const Utf8Char u = utf8_at(s, begin);
    if (!is_space(u.c)) break;
    begin += u.bytes;
  }
  while (p.right && end > begin) {
    const size_t last = utf8_before(s, end);
    if (!is_space(utf8_at(s, last).c)) break;
    end = last;
  }
  return s.substr(begin, end - begin);
}

std::string run_step(const Replace& r, std::string s) {
  if (!r.regex) return replaced(s, r.literal, r.with);
  std::vector<Regex::Match> matches;
  r.regex->find_all(s, matches);
  std::string out;
  size_t at = 0;
  for (auto [begin, end] : matches) {
    out.append(s, at, begin - at);
    out += r.with;
    check_growth(s.size(), out.size());
    at = end;
  }
  out.append(s, at);
  return out;
}

std::string run_step(const BertCleanup& b, std::string s) {
  std::string out;
  out.reserve(s.size());
  each_char(s, [&](uint32_t c, std::string_view bytes) {
    if (b.clean) {
      const bool blank = c == '\t' || c == '\n' || c == '\r' || is_space(c);
      if (c == 0 || c == 0xfffd || (!blank && in_categories(c, bit(Category::cc) | bit(Category::cf) | bit(Category::cs) | bit(Category::co)))) return;
      if (blank && c != '\t' && c != '\n' && c != '\r' && in_categories(c, bit(Category::cc))) return;
      if (blank) bytes = " ";
    }
    if (b.ideographs && is_cjk_ideograph(c)) {
      out += ' ';
      out += bytes;
      out += ' ';
    } else {
      out += bytes;
    }
  });
  if (b.strip_accents && b.bases_only) out = bases(out);
  else if (b.strip_accents) out = without(normalize(out, NormalForm::nfd), bit(Category::mn));
  return b.lowercase ? lowered(out) : out;
}

std::string run_step(const SentencePieceRules& p, std::string s) {
  std::string out;
  bool in_word = false, prefixed = false;
  auto put = [&](std::string_view text) {
    for (char c : text) {
      if (c != ' ') {
        if (!in_word) {
          in_word = true;
          if ((p.add_prefix && !prefixed) || p.merge_spaces) out += kSpaceMark;
          prefixed = true;
        }
        out += c;
      } else {
        in_word = false;
        if (!p.merge_spaces) out += kSpaceMark;
      }
    }
  };
  for (size_t i = 0; i < s.size();) {
    const CharsMap::Hit hit = p.rules ? p.rules->find(std::string_view(s).substr(i), true) : CharsMap::Hit();
    const size_t n = hit.bytes ? hit.bytes : utf8_at(s, i).bytes;
    put(hit.bytes ? hit.replacement : std::string_view(s).substr(i, n));
    check_growth(s.size(), out.size());
    i += n;
  }
  return out;
}

std::string run_step(const std::shared_ptr<const CharsMap>& m, std::string s) { return m->normalize(s); }

std::string from_base64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int n = 0;
  for (char c : text) {
    if (c == '=') break;
    const int v = c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : c >= '0' && c <= '9' ? c - '0' + 52 : c == '+' ? 62 : c == '/' ? 63 : -1;
    if (v < 0) fail(Code::tokenizer, "normalizer.precompiled_charsmap: not base64");
    bits = bits << 6 | uint32_t(v);
    if ((n += 6) >= 8) out += char(bits >> (n -= 8) & 0xff);
  }
  return out;
}

void add_steps(Json j, std::vector<Normalizer::Step>& steps, int depth) {
  if (!j || j.is_null()) return;
  if (depth > kMaxDepth) fail(Code::tokenizer, "normalizer: sequences nest too deeply");
  const std::string_view type = j["type"].string("normalizer.type");
  auto flag = [&](const char* key) { return j[key].boolean(cat("normalizer.", key)); };
  if (type == "Sequence") {
    for (Json e : j["normalizers"].elements()) add_steps(e, steps, depth + 1);
  } else if (type == "NFC") {
    steps.push_back(NormalForms{NormalForm::nfc});
  } else if (type == "NFD") {
    steps.push_back(NormalForms{NormalForm::nfd});
  } else if (type == "NFKC") {
    steps.push_back(NormalForms{NormalForm::nfkc});
  } else if (type == "NFKD") {
    steps.push_back(NormalForms{NormalForm::nfkd});
  } else if (type == "Lowercase") {
    steps.push_back(Lowercase{});
  } else if (type == "StripAccents") {
    steps.push_back(StripAccents{});
  } else if (type == "Nmt") {
    steps.push_back(NmtCleanup{});
  } else if (type == "ByteLevel") {
    steps.push_back(BytesToLetters{});
  } else if (type == "Prepend") {
    steps.push_back(Prepend{std::string(j["prepend"].string("normalizer.prepend"))});
  } else if (type == "Strip") {
    steps.push_back(StripSpaces{flag("strip_left"), flag("strip_right")});
  } else if (type == "Replace") {
    Replace r;
    r.with = j["content"].string("normalizer.content");
    if (Json p = j["pattern"]["Regex"]) r.regex = std::make_shared<Regex>(Regex::compile(p.string("normalizer.pattern.Regex")));
    else r.literal = j["pattern"]["String"].string("normalizer.pattern.String");
    steps.push_back(std::move(r));
  } else if (type == "BertNormalizer") {
    const bool lower = flag("lowercase");
    const Json accents = j["strip_accents"];
    steps.push_back(BertCleanup{flag("clean_text"), flag("handle_chinese_chars"),
                                accents && !accents.is_null() ? flag("strip_accents") : lower, lower});
  } else if (type == "Precompiled") {
    steps.push_back(CharsMap::parse(from_base64(j["precompiled_charsmap"].string("normalizer.precompiled_charsmap")),
                                    "normalizer.precompiled_charsmap"));
  } else {
    fail(Code::tokenizer, "normalizer type ", quoted(type), " is not supported");
  }
}

}  // namespace

Normalizer Normalizer::from_json(Json j) {
  Normalizer n;
  add_steps(j, n.steps, 0);
  return n;
}

std::string Normalizer::run(std::string s) const {
  const size_t before = s.size();
  for (const Step& step : steps) {
    s = std::visit([&](const auto& v) { return run_step(v, std::move(s)); }, step);
    check_growth(before, s.size());
  }
  return s;
}

void check_growth(size_t before, size_t now) {
  if (now > 4096 + 64 * before || now > UINT32_MAX)
    fail(Code::tokenizer, "the steps of the tokenizer make more than ", now, " bytes of ", before);
}

std::shared_ptr<const CharsMap> CharsMap::parse(std::string_view blob, std::string_view what) {
  uint32_t bytes = 0;
  if (blob.size() >= 4) std::memcpy(&bytes, blob.data(), 4);
  if (blob.size() < 4 || bytes > blob.size() - 4 || bytes % 4) fail(Code::tokenizer, what, ": an array of ", bytes, " bytes in ", blob.size());
  auto m = std::make_shared<CharsMap>();
  m->units_.resize(bytes / 4);
  if (bytes) std::memcpy(m->units_.data(), blob.data() + 4, bytes);
  m->replacements_ = blob.substr(4 + bytes);
  return m;
}

// Units (darts-clone): bits 0-7 label and bit 31 leaf for the check, bit 8 has a leaf, bit 9 the offset's scale, bits 10-30 its
// value; a leaf holds its value in bits 0-30. Every step stays inside the array, whatever the file says.
CharsMap::Hit CharsMap::find(std::string_view s, bool longest) const {
  auto unit = [&](size_t i) { return i < units_.size() ? units_[i] : 0; };
  auto offset = [](uint32_t u) { return (u >> 10) << ((u & (1u << 9)) >> 6); };
  Hit hit;
  size_t node = offset(unit(0));
  const size_t most = std::min(s.size(), kMaxKey);
  for (size_t i = 0; i < most && s[i]; i++) {
    const auto c = static_cast<uint8_t>(s[i]);
    node ^= c;
    const uint32_t u = unit(node);
    if ((u & (1u << 31 | 0xff)) != c) break;
    node ^= offset(u);
    if (!(u >> 8 & 1)) continue;
    const size_t at = unit(node) & ~(1u << 31);
    if (at >= replacements_.size()) break;
    hit = {i + 1, std::string_view(replacements_).substr(at, std::min(replacements_.find('\0', at), replacements_.size()) - at)};
    if (!longest) break;
  }
  return hit;
}

std::string CharsMap::normalize(std::string_view s) const {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size();) {
    const std::string_view cluster = s.substr(i, grapheme_bytes(s, i));
    i += cluster.size();
    const Hit whole = cluster.size() < 6 ? find(cluster, false) : Hit();
    if (whole.bytes) {
      out += whole.replacement;
      check_growth(s.size(), out.size());
      continue;
    }
    each_char(cluster, [&](uint32_t, std::string_view c) {
      const Hit one = find(c, false);
      out += one.bytes ? one.replacement : c;
      check_growth(s.size(), out.size());
    });
  }
  return out;
}

namespace {
// Bytes that are printable in Latin-1 stand for themselves, the others for U+0100 and up, in order.
constexpr bool stands_for_itself(uint32_t b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255); }
struct ByteLetters {
  uint16_t letter[256] = {};
  int16_t byte[0x144] = {};
};
constexpr ByteLetters make_letters() {
  ByteLetters t;
  for (int16_t& b : t.byte) b = -1;
  uint16_t next = 256;
  for (uint32_t b = 0; b < 256; b++) {
    t.letter[b] = stands_for_itself(b) ? uint16_t(b) : next++;
    t.byte[t.letter[b]] = int16_t(b);
  }
  return t;
}
constexpr ByteLetters kLetters = make_letters();
}  // namespace

void append_byte_letter(std::string& out, uint8_t byte) { utf8_append(out, kLetters.letter[byte]); }
int byte_of_letter(uint32_t c) { return c < std::size(kLetters.byte) ? kLetters.byte[c] : -1; }

std::string replaced(std::string_view s, std::string_view what, std::string_view with) {
  if (what.empty()) return std::string(s);
  std::string out;
  size_t at = 0;
  for (size_t hit; (hit = s.find(what, at)) != s.npos; at = hit + what.size()) {
    out += s.substr(at, hit - at);
    out += with;
    check_growth(s.size(), out.size());
  }
  out += s.substr(at);
  return out;
}

}  // namespace tealight
