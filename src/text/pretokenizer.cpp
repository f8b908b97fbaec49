#include "src/text/pretokenizer.h"

#include "src/base/error.h"
#include "src/base/unicode.h"
#include "src/text/normalizer.h"

namespace tealight {

const char kGpt2Pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

namespace {

constexpr int kMaxDepth = 16;
// \w+|[^\w\s]+ where \w is as in UTS 18, annex C, with the joiners.
constexpr const char kWords[] = "[\\w\u200c\u200d]+|[^\\w\\s\u200c\u200d]+";

struct Part {
  size_t begin, end;
  bool match;
};

// The matches in one piece and what lies between them, in order.
class Finder {
 public:
  explicit Finder(const SplitStep& s) : s_(s) {}
  const std::vector<Part>& find(std::string_view piece) {
    parts_.clear();
    if (s_.regex) {
      s_.regex->find_all(piece, matches_);
    } else {
      matches_.clear();
      if (s_.chars) find_chars(piece);
      else find_literal(piece);
    }
    size_t at = 0;
    for (auto [begin, end] : matches_) {
      if (begin > at) parts_.push_back({at, begin, s_.invert});
      parts_.push_back({begin, end, !s_.invert});
      at = end;
    }
    if (at < piece.size()) parts_.push_back({at, piece.size(), s_.invert});
    return parts_;
  }

 private:
  void find_chars(std::string_view piece) {
    for (size_t i = 0; i < piece.size();) {
      const Utf8Char u = utf8_at(piece, i);
      if (s_.chars(u.c)) matches_.push_back({i, i + u.bytes});
      i += u.bytes;
    }
  }
  void find_literal(std::string_view piece) {
    if (s_.literal.empty()) return;
    for (size_t at = 0, hit; (hit = piece.find(s_.literal, at)) != piece.npos; at = hit + s_.literal.size())
      matches_.push_back({hit, hit + s_.literal.size()});
  }

  const SplitStep& s_;
  std::vector<Part> parts_;
  std::vector<Regex::Match> matches_;
};

void cut_parts(std::string_view piece, const std::vector<Part>& parts, SplitBehavior behavior, Pieces& out) {
  for (size_t i = 0; i < parts.size(); i++) {
    const Part& p = parts[i];
    const bool after = i + 1 < parts.size() && parts[i + 1].match;
    if (behavior == SplitBehavior::removed && p.match) continue;
    out.text += piece.substr(p.begin, p.end - p.begin);
    bool cut = true;
    if (behavior == SplitBehavior::contiguous) cut = i + 1 == parts.size() || parts[i + 1].match != p.match;
    if (behavior == SplitBehavior::merged_with_previous) cut = p.match || !after;
    if (behavior == SplitBehavior::merged_with_next) cut = !p.match || i + 1 == parts.size() || after;
    if (cut) out.cut();
  }
  out.cut();
}

void run_step(const SplitStep& s, const Pieces& in, Pieces& out) {
  Finder finder(s);
  for (size_t i = 0; i < in.size(); i++) {
    const std::vector<Part>& parts = finder.find(in[i]);
    if (s.behavior == SplitBehavior::removed && i == 0 && !parts.empty() && parts[0].match) out.at_start = false;
    cut_parts(in[i], parts, s.behavior, out);
  }
}

void run_step(const ByteLevelStep& s, const Pieces& in, Pieces& out) {
  std::vector<Regex::Match> matches;
  std::string with_space;
  auto put = [&](std::string_view bytes) {
    for (char c : bytes) append_byte_letter(out.text, static_cast<uint8_t>(c));
    out.cut();
  };
  for (size_t i = 0; i < in.size(); i++) {
    std::string_view piece = in[i];
    if (s.prefix_space && piece[0] != ' ') {
      with_space = " ";
      with_space += piece;
      piece = with_space;
    }
    if (!s.regex) {
      put(piece);
      continue;
    }
    s.regex->find_all(piece, matches);
    size_t at = 0;
    for (auto [begin, end] : matches) {
      put(piece.substr(at, begin - at));
      put(piece.substr(begin, end - begin));
      at = end;
    }
    put(piece.substr(at));
  }
}

void run_step(const MetaspaceStep& s, const Pieces& in, Pieces& out) {
  SplitStep by_mark;
  by_mark.literal = s.mark;
  by_mark.behavior = SplitBehavior::merged_with_next;
  Finder finder(by_mark);
  for (size_t i = 0; i < in.size(); i++) {
    std::string piece = replaced(in[i], " ", s.mark);
    const bool prepend = s.prepend == MetaspaceStep::Scheme::always || (s.prepend == MetaspaceStep::Scheme::first && in.at_start && i == 0);
    if (prepend && !piece.starts_with(s.mark)) piece.insert(0, s.mark);
    if (s.split) cut_parts(piece, finder.find(piece), by_mark.behavior, out);
    else out.add(piece);
  }
}

SplitBehavior behavior(Json j, const char* what) {
  const std::string_view name = j.string(what);
  static constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {{"Isolated", SplitBehavior::isolated},
                                                                         {"Removed", SplitBehavior::removed},
                                                                         {"MergedWithPrevious", SplitBehavior::merged_with_previous},
                                                                         {"MergedWithNext", SplitBehavior::merged_with_next},
                                                                         {"Contiguous", SplitBehavior::contiguous}};
  for (auto [n, b] : kNames)
    if (n == name) return b;
  fail(Code::tokenizer, what, ": unknown behavior ", quoted(name));
}

std::shared_ptr<const Regex> regex(std::string_view pattern) { return std::make_shared<Regex>(Regex::compile(pattern)); }

bool flag(Json j, const char* key, bool otherwise) {
  const Json v = j[key];
  return v && !v.is_null() ? v.boolean(cat("pre_tokenizer.", key)) : otherwise;
}

MetaspaceStep metaspace(Json j) {
  MetaspaceStep m;
  m.mark = j["replacement"].string("pre_tokenizer.replacement");
  if (m.mark.empty() || utf8_at(m.mark, 0).bytes < m.mark.size()) fail(Code::tokenizer, "pre_tokenizer.replacement: is not one character");
  m.split = flag(j, "split", true);
  if (Json scheme = j["prepend_scheme"]) {
    const std::string_view name = scheme.string("pre_tokenizer.prepend_scheme");
    if (name == "never") m.prepend = MetaspaceStep::Scheme::never;
    else if (name == "first") m.prepend = MetaspaceStep::Scheme::first;
    else if (name != "always") fail(Code::tokenizer, "pre_tokenizer.prepend_scheme: unknown scheme ", quoted(name));
  } else if (!flag(j, "add_prefix_space", true)) {
    m.prepend = MetaspaceStep::Scheme::never;
  }
  return m;
}

void add_steps(Json j, std::vector<PreTokenizer::Step>& steps, int depth) {
  if (!j || j.is_null()) return;
  if (depth > kMaxDepth) fail(Code::tokenizer, "pre_tokenizer: sequences nest too deeply");
  const std::string_view type = j["type"].string("pre_tokenizer.type");
  auto split_chars = [&](bool (*chars)(uint32_t), SplitBehavior b) {
    SplitStep s;
    s.chars = chars;
    s.behavior = b;
    steps.push_back(std::move(s));
  };
  if (type == "Sequence") {
    for (Json e : j["pretokenizers"].elements()) add_steps(e, steps, depth + 1);
  } else if (type == "ByteLevel") {
    steps.push_back(ByteLevelStep{flag(j, "add_prefix_space", true), flag(j, "use_regex", true) ? regex(kGpt2Pattern) : nullptr});
  } else if (type == "Split") {
    SplitStep s;
    if (Json p = j["pattern"]["Regex"]) s.regex = regex(p.string("pre_tokenizer.pattern.Regex"));
    else s.literal = j["pattern"]["String"].string("pre_tokenizer.pattern.String");
    s.behavior = behavior(j["behavior"], "pre_tokenizer.behavior");
    s.invert = flag(j, "invert", false);
    steps.push_back(std::move(s));
  } else if (type == "Digits") {
    split_chars(is_numeric, flag(j, "individual_digits", false) ? SplitBehavior::isolated : SplitBehavior::contiguous);
  } else if (type == "Punctuation") {
    split_chars(is_punctuation, j["behavior"] ? behavior(j["behavior"], "pre_tokenizer.behavior") : SplitBehavior::isolated);
  } else if (type == "WhitespaceSplit") {
    split_chars(is_space, SplitBehavior::removed);
  } else if (type == "Whitespace") {
    SplitStep s;
    s.regex = regex(kWords);
    s.behavior = SplitBehavior::removed;
    s.invert = true;
    steps.push_back(std::move(s));
  } else if (type == "BertPreTokenizer") {
    split_chars(is_space, SplitBehavior::removed);
    split_chars(is_punctuation, SplitBehavior::isolated);
  } else if (type == "CharDelimiterSplit") {
    SplitStep s;
    s.literal = j["delimiter"].string("pre_tokenizer.delimiter");
    s.behavior = SplitBehavior::removed;
    steps.push_back(std::move(s));
  } else if (type == "Metaspace") {
    steps.push_back(metaspace(j));
  } else {
    fail(Code::tokenizer, "pre_tokenizer type ", quoted(type), " is not supported");
  }
}

}  // namespace

PreTokenizer PreTokenizer::from_json(Json j) {
  PreTokenizer p;
  add_steps(j, p.steps, 0);
  return p;
}

void PreTokenizer::run(Pieces& pieces) const {
  const size_t before = pieces.text.size();
  Pieces out;
  for (const Step& step : steps) {
    out.clear();
    out.at_start = pieces.at_start;
    std::visit([&](const auto& s) { run_step(s, pieces, out); }, step);
    check_growth(before, out.text.size());
    std::swap(pieces, out);
  }
}

}  // namespace tealight
