#include "src/text/token_decoder.h"

#include <algorithm>
#include <cstring>

#include "src/base/error.h"
#include "src/base/unicode.h"
#include "src/text/vocab.h"

namespace tealight {
namespace {

constexpr int kMaxDepth = 16;

// The tail of a string, from `at` on, that steps rewrite in place.
struct Tail {
  std::string& s;
  size_t at;
  bool first, literal;
  std::string_view view() const { return std::string_view(s).substr(at); }
};

void replace_in(Tail t, std::string_view what, std::string_view with) {
  if (what.empty()) return;
  if (with.size() > what.size()) {
    const std::string changed = replaced(t.view(), what, with);
    t.s.replace(t.at, t.s.npos, changed);
    return;
  }
  size_t to = t.at;                        // in place: what is written never passes what is read
  for (size_t from = t.at, hit;; from = hit + what.size()) {
    hit = std::min(t.s.find(what, from), t.s.size());
    std::memmove(t.s.data() + to, t.s.data() + from, hit - from);
    to += hit - from;
    if (hit == t.s.size()) break;
    with.copy(t.s.data() + to, with.size());
    to += with.size();
  }
  t.s.resize(to);
}

void run_step(const LettersToBytes&, Tail t) {
  if (t.literal) return;
  const std::string_view v = t.view();
  for (size_t i = 0; i < v.size();) {
    const Utf8Char u = utf8_at(v, i);
    if (byte_of_letter(u.c) < 0) return;      // not byte-level after all: as it is
    i += u.bytes;
  }
  size_t to = t.at;
  for (size_t i = t.at; i < t.s.size();) {
    const Utf8Char u = utf8_at(t.s, i);
    i += u.bytes;
    t.s[to++] = char(byte_of_letter(u.c));
  }
  t.s.resize(to);
}

void run_step(const ByteFallback&, Tail t) {
  const int b = byte_of_piece(t.view());
  if (b < 0) return;
  t.s.resize(t.at);
  t.s += char(b);
}

void run_step(const StripChars& p, Tail t) {
  if (p.content.empty()) return;
  size_t gone = 0;
  for (size_t n = p.whole && !t.first ? 0 : p.start; n > 0 && t.view().substr(gone).starts_with(p.content); n--) gone += p.content.size();
  t.s.erase(t.at, gone);
  for (size_t n = p.whole ? 0 : p.stop; n > 0 && t.view().ends_with(p.content); n--) t.s.resize(t.s.size() - p.content.size());
}

void run_step(const Marks& m, Tail t) { replace_in(t, m.mark, t.first && m.drop_first ? "" : " "); }

void run_step(const JoinWords& w, Tail t) {
  bool inside = !w.prefix.empty() && t.view().starts_with(w.prefix);
  if (!w.word_mark.empty()) inside = !t.literal && !t.view().starts_with(w.word_mark);
  if (!w.word_mark.empty() && !inside && !t.literal) t.s.erase(t.at, w.word_mark.size());
  if (!t.first) {
    if (inside) t.s.erase(t.at, w.prefix.size());
    else t.s.insert(t.at, " ");
  }
  if (!w.cleanup) return;
  static constexpr std::pair<std::string_view, std::string_view> kCleanups[] = {
      {" .", "."},   {" ?", "?"},   {" !", "!"},           {" ,", ","},   {" ' ", "'"},  {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (auto [from, to] : kCleanups) replace_in(t, from, to);
}

void run_step(const EndOfWord& e, Tail t) { replace_in(t, e.suffix, " "); }

void run_step(const JoinBySpace&, Tail t) {
  if (!t.first) t.s.insert(t.at, " ");
}

void run_step(const Replace& r, Tail t) {
  if (!r.regex) return replace_in(t, r.literal, r.with);
  Normalizer n;
  n.steps.push_back(r);
  const std::string changed = n.run(std::string(t.view()));
  t.s.replace(t.at, t.s.npos, changed);
}

std::string text(Json j, const char* key, std::string_view otherwise) {
  const Json v = j[key];
  return std::string(v && !v.is_null() ? v.string(cat("decoder.", key)) : otherwise);
}

void add_steps(Json j, std::vector<TokenDecoder::Step>& steps, bool& fused, int depth) {
  if (depth > kMaxDepth) fail(Code::tokenizer, "decoder: sequences nest too deeply");
  const std::string_view type = j["type"].string("decoder.type");
  if (type == "Sequence") {
    for (Json e : j["decoders"].elements()) add_steps(e, steps, fused, depth + 1);
  } else if (type == "ByteLevel") {
    steps.push_back(LettersToBytes{});
  } else if (type == "ByteFallback") {
    steps.push_back(ByteFallback{});
  } else if (type == "Fuse") {
    fused = true;
  } else if (type == "Strip") {
    const uint64_t start = j["start"].unsigned_integer("decoder.start"), stop = j["stop"].unsigned_integer("decoder.stop");
    steps.push_back(StripChars{text(j, "content", " "), size_t(start), size_t(stop), fused});
  } else if (type == "Replace") {
    Replace r;
    r.with = j["content"].string("decoder.content");
    if (Json p = j["pattern"]["Regex"]) r.regex = std::make_shared<Regex>(Regex::compile(p.string("decoder.pattern.Regex")));
    else r.literal = j["pattern"]["String"].string("decoder.pattern.String");
    steps.push_back(std::move(r));
  } else if (type == "Metaspace") {
    Json legacy = j["add_prefix_space"];
    const bool drop = j["prepend_scheme"] ? text(j, "prepend_scheme", "always") != "never" : !legacy || legacy.boolean("decoder.add_prefix_space");
    steps.push_back(Marks{text(j, "replacement", "\xe2\x96\x81"), drop});
  } else if (type == "WordPiece") {
    Json cleanup = j["cleanup"];
    steps.push_back(JoinWords{text(j, "prefix", "##"), "", !cleanup || cleanup.boolean("decoder.cleanup")});
  } else if (type == "BPEDecoder") {
    steps.push_back(EndOfWord{text(j, "suffix", "</w>")});
  } else {
    fail(Code::tokenizer, "decoder type ", quoted(type), " is not supported");
  }
}

}  // namespace

TokenDecoder TokenDecoder::from_json(Json j) {
  TokenDecoder d;
  bool fused = false;
  if (!j || j.is_null()) d.steps.push_back(JoinBySpace{});
  else add_steps(j, d.steps, fused, 0);
  return d;
}

void TokenDecoder::append(std::string& out, std::string_view piece, bool first, bool literal) const {
  const Tail t{out, out.size(), first, literal};
  out += piece;
  for (const Step& step : steps) {
    std::visit([&](const auto& s) { run_step(s, t); }, step);
    check_growth(piece.size(), t.view().size());
  }
}

}  // namespace tealight
