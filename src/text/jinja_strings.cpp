// Methods of str.
#include "src/text/jinja_strings.h"

#include <algorithm>

namespace tealight::jinja {

Value like(Runtime& rt, const Value& self, Text t) { return rt.text(std::move(t), self.is_string() && self.string().markup); }

Text cased(Runtime& rt, const Text& t, Case to) {
  Text out;
  rt.step(t.size() / 16);
  const std::string_view s = t.view();
  for (size_t pos = 0; pos < s.size(); pos += char_bytes(static_cast<unsigned char>(s[pos]))) {
    const char32_t c = char_at(s, pos);
    std::string buf;
    if (to == Case::lower && c == 0x3a3) {   // sigma at the end of a word has a form of its own
      const bool begins = pos == 0 || !is_alpha(char_at(s, pos - (pos >= 2 && (s[pos - 1] & 0xc0) == 0x80 ? 2 : 1)));
      const bool ends = pos + 2 >= s.size() || !is_alpha(char_at(s, pos + 2));
      append_char(buf, !begins && ends ? 0x3c2 : 0x3c3);
    } else {
      append_cased(buf, c, to);
    }
    out.append(buf, t.user_at(pos));
  }
  rt.bound(out.size());
  return out;
}

// Words begin where a cased letter follows something that is not one.
Text titled(Runtime& rt, const Text& t) {
  Text out;
  rt.step(t.size() / 16);
  bool in_word = false;
  const std::string_view s = t.view();
  for (size_t pos = 0; pos < s.size(); pos += char_bytes(static_cast<unsigned char>(s[pos]))) {
    const char32_t c = char_at(s, pos);
    std::string buf;
    append_cased(buf, c, in_word ? Case::lower : Case::title);
    out.append(buf, t.user_at(pos));
    in_word = is_upper(c) || is_lower(c) || is_title(c);
  }
  return out;
}

Text capitalized(Runtime& rt, const Text& t) {
  if (t.empty()) return t;
  const size_t first = char_bytes(static_cast<unsigned char>(t.view()[0]));
  Text out = cased(rt, t.slice(0, first), Case::title);
  out.append(cased(rt, t.slice(first, t.size() - first), Case::lower));
  return out;
}

Text stripped(const Text& t, const Text* chars, bool left, bool right) {
  const std::string_view s = t.view();
  size_t begin = 0, end = s.size();
  if (!chars) {
    if (left) begin = leading_space(s);
    if (right && begin < end) end -= trailing_space(s);
    return t.slice(begin, end - begin);
  }
  std::u32string set;
  for (size_t pos = 0; pos < chars->size(); pos += char_bytes(static_cast<unsigned char>(chars->view()[pos]))) set += char_at(chars->view(), pos);
  const auto in_set = [&](size_t pos) { return set.find(char_at(s, pos)) != set.npos; };
  while (left && begin < end && in_set(begin)) begin += char_bytes(static_cast<unsigned char>(s[begin]));
  while (right && begin < end) {
    size_t at = end - 1;
    while ((static_cast<unsigned char>(s[at]) & 0xc0) == 0x80) at--;
    if (!in_set(at)) break;
    end = at;
  }
  return t.slice(begin, end - begin);
}

Text replaced(Runtime& rt, const Text& t, const Text& from, const Text& to, Int count) {
  Text out;
  const std::string_view s = t.view();
  rt.step(s.size() / 16);
  size_t pos = 0;
  if (count < 0) count = Int(s.size()) + 1;
  if (from.empty()) {   // before each character and at the end
    for (;; count--) {
      if (count > 0) out.append(to);
      if (pos >= s.size()) return out;
      const size_t n = char_bytes(static_cast<unsigned char>(s[pos]));
      out.append(t, pos, n);
      pos += n;
      rt.bound(out.size());
    }
  }
  for (; count > 0; count--) {
    const size_t found = s.find(from.view(), pos);
    if (found == s.npos) break;
    out.append(t, pos, found - pos);
    out.append(to);
    pos = found + from.size();
    rt.bound(out.size());
    rt.step();
  }
  out.append(t, pos, s.size() - pos);
  return out;
}

Value joined(Runtime& rt, const Value& separator, const std::vector<Value>& items) {
  Text out;
  for (size_t i = 0; i < items.size(); i++) {
    if (i > 0) append_str(rt, out, separator);
    append_str(rt, out, items[i]);
    rt.step();
  }
  return rt.text(std::move(out));
}

std::vector<Text> lines_of(const Text& t, bool keep_ends) {
  std::vector<Text> out;
  const std::string_view s = t.view();
  for (size_t begin = 0; begin < s.size();) {
    size_t end = begin, stop = s.size();
    for (; end < s.size(); end += char_bytes(static_cast<unsigned char>(s[end]))) {
      const char32_t c = char_at(s, end);
      if ((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029) {
        stop = end + char_bytes(static_cast<unsigned char>(s[end]));
        if (c == '\r' && stop < s.size() && s[stop] == '\n') stop++;
        break;
      }
    }
    out.push_back(t.slice(begin, (keep_ends ? stop : end) - begin));
    begin = stop;
  }
  return out;
}

namespace {

const Text& needle(Runtime& rt, const Params& p, size_t i, std::string_view what) {
  const Text* t = p.text(i);
  if (!t) rt.error(what, "(): expected a string");
  return *t;
}

// The bytes that [start:end] of a method's optional arguments stand for.
std::pair<size_t, size_t> bounds(Runtime& rt, std::string_view s, const Params& p, size_t first) {
  const auto offset = [&](size_t slot, size_t otherwise) {
    if (!p[slot] || p[slot]->is_none()) return otherwise;
    const Int n = Int(count_chars(s));
    rt.step(s.size() / 64);
    Int i = p.integer(slot, 0);
    if (i < 0) i = std::max<Int>(0, i + n);
    return i > n ? s.size() + 1 : char_offset(s, size_t(i));
  };
  return {offset(first, 0), std::min(offset(first + 1, s.size()), s.size())};
}

Value split_space(Runtime& rt, const Value& self, Int most, bool from_right) {
  const Text& t = self.text();
  std::string_view rest = t.view();
  std::vector<Value> out;
  rt.step(rest.size() / 8);
  if (most < 0) most = Int(rest.size()) + 1;
  const auto part = [&](std::string_view s) { out.push_back(like(rt, self, t.slice(size_t(s.data() - t.view().data()), s.size()))); };
  const auto skip = [&] {
    if (from_right) rest.remove_suffix(trailing_space(rest));
    else rest.remove_prefix(leading_space(rest));
  };
  for (skip(); most > 0 && !rest.empty(); most--, skip()) {
    size_t begin = 0, end = rest.size();   // the word
    if (from_right) {
      begin = end;
      while (begin > 0 && trailing_space(rest.substr(0, begin)) == 0) begin--;
    } else {
      end = 0;
      while (end < rest.size() && !is_space(char_at(rest, end))) end += char_bytes(static_cast<unsigned char>(rest[end]));
    }
    part(rest.substr(begin, end - begin));
    rest = from_right ? rest.substr(0, begin) : rest.substr(end);
  }
  if (!rest.empty()) part(rest);
  if (from_right) std::reverse(out.begin(), out.end());
  return rt.list(std::move(out));
}

Value split_at(Runtime& rt, const Value& self, const Text& separator, Int most, bool from_right) {
  const Text& t = self.text();
  const std::string_view s = t.view(), sep = separator.view();
  if (sep.empty()) rt.error("empty separator");
  rt.step(s.size() / 16);
  std::vector<Value> out;
  if (most < 0) most = Int(s.size()) + 1;
  if (!from_right) {
    size_t pos = 0;
    for (; most > 0; most--) {
      const size_t found = s.find(sep, pos);
      if (found == s.npos) break;
      out.push_back(like(rt, self, t.slice(pos, found - pos)));
      pos = found + sep.size();
      rt.step();
    }
    out.push_back(like(rt, self, t.slice(pos, s.size() - pos)));
    return rt.list(std::move(out));
  }
  size_t end = s.size();
  for (; most > 0 && end >= sep.size(); most--) {
    const size_t found = s.rfind(sep, end - sep.size());
    if (found == s.npos) break;
    out.push_back(like(rt, self, t.slice(found + sep.size(), end - found - sep.size())));
    end = found;
    rt.step();
  }
  out.push_back(like(rt, self, t.slice(0, end)));
  std::reverse(out.begin(), out.end());
  return rt.list(std::move(out));
}

template <bool kRight>
Value split(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, kRight ? "rsplit" : "split", args, {"sep", "maxsplit"});
  const Int most = p.integer(1, -1);
  const Text* separator = p.text(0);
  return separator ? split_at(rt, self, *separator, most, kRight) : split_space(rt, self, most, kRight);
}

Value splitlines(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "splitlines", args, {"keepends"});
  std::vector<Value> out;
  for (Text& t : lines_of(self.text(), p.flag(0))) out.push_back(like(rt, self, std::move(t)));
  return rt.list(std::move(out));
}

template <bool kRight>
Value partition(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "partition", args, {""}, 1);
  const Text& sep = needle(rt, p, 0, "partition");
  if (sep.empty()) rt.error("empty separator");
  const Text& t = self.text();
  const size_t at = kRight ? t.view().rfind(sep.view()) : t.view().find(sep.view());
  const auto part = [&](size_t begin, size_t end) { return like(rt, self, t.slice(begin, end - begin)); };
  const size_t n = t.size();
  if (at == std::string_view::npos)
    return rt.list({part(0, kRight ? 0 : n), part(0, 0), part(kRight ? 0 : n, n)}, Type::tuple);
  return rt.list({part(0, at), part(at, at + sep.size()), part(at + sep.size(), n)}, Type::tuple);
}

template <bool kLeft, bool kRight>
Value strip(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "strip", args, {""});
  return like(rt, self, stripped(self.text(), p.text(0), kLeft, kRight));
}

template <bool kEnd>
Value startswith(Runtime& rt, const Value& self, const Args& args) {
  constexpr std::string_view name = kEnd ? "endswith" : "startswith";
  const Params p(rt, name, args, {"", "", ""}, 1);
  const auto [begin, end] = bounds(rt, self.str(), p, 1);
  if (begin > end) return Value::of(false);
  const std::string_view s = self.str().substr(begin, end - begin);
  const auto matches = [&](const Value& v) {
    if (!v.is_string()) rt.error(name, " first arg must be str or a tuple of str, not ", type_name(v));
    return kEnd ? s.ends_with(v.str()) : s.starts_with(v.str());
  };
  if (!p[0]->is(Type::tuple)) return Value::of(matches(*p[0]));
  for (const Value& v : p[0]->items())
    if (matches(v)) return Value::of(true);
  return Value::of(false);
}

enum class Find { find, rfind, index, rindex };
template <Find kHow>
Value find(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "find", args, {"", "", ""}, 1);
  const Text& t = needle(rt, p, 0, "find");
  const auto [begin, end] = bounds(rt, self.str(), p, 1);
  rt.step(self.text().size() / 16);
  size_t at = std::string_view::npos;
  if (begin <= end) {
    const std::string_view s = self.str().substr(begin, end - begin);
    at = kHow == Find::find || kHow == Find::index ? s.find(t.view()) : s.rfind(t.view());
  }
  if (at != std::string_view::npos) return Value::of(count_chars(self.str().substr(0, begin + at)));
  if (kHow == Find::index || kHow == Find::rindex) rt.error("substring not found");
  return Value::of(-1);
}

Value count(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "count", args, {"", "", ""}, 1);
  const Text& t = needle(rt, p, 0, "count");
  const auto [begin, end] = bounds(rt, self.str(), p, 1);
  if (begin > end) return Value::of(0);
  const std::string_view s = self.str().substr(begin, end - begin);
  rt.step(s.size() / 16);
  if (t.empty()) return Value::of(count_chars(s) + 1);
  size_t n = 0;
  for (size_t pos = s.find(t.view()); pos != s.npos; pos = s.find(t.view(), pos + t.size())) n++;
  return Value::of(n);
}

Value replace(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "replace", args, {"", "", ""}, 2);
  return like(rt, self, replaced(rt, self.text(), needle(rt, p, 0, "replace"), needle(rt, p, 1, "replace"), p.integer(2, -1)));
}

Value join(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "join", args, {""}, 1);
  const std::vector<Value> items = iterate(rt, *p[0]);
  for (const Value& v : items)
    if (!v.is_string()) rt.error("sequence item: expected str instance, ", type_name(v), " found");
  return joined(rt, self, items);
}

template <Case kCase>
Value change_case(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "case", args, {});
  return like(rt, self, cased(rt, self.text(), kCase));
}
Value title(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "title", args, {});
  return like(rt, self, titled(rt, self.text()));
}
Value capitalize(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "capitalize", args, {});
  return like(rt, self, capitalized(rt, self.text()));
}
Value swapcase(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "swapcase", args, {});
  Text out;
  const Text& t = self.text();
  for (size_t pos = 0; pos < t.size(); pos += char_bytes(static_cast<unsigned char>(t.view()[pos]))) {
    const char32_t c = char_at(t.view(), pos);
    std::string buf;
    append_cased(buf, c, is_upper(c) ? Case::lower : Case::upper);
    out.append(buf, t.user_at(pos));
  }
  return like(rt, self, std::move(out));
}

template <bool kPrefix>
Value remove_affix(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "removeprefix", args, {""}, 1);
  const std::string_view s = self.str(), affix = needle(rt, p, 0, "removeprefix").view();
  if (kPrefix && s.starts_with(affix)) return like(rt, self, self.text().slice(affix.size(), s.size() - affix.size()));
  if (!kPrefix && s.ends_with(affix)) return like(rt, self, self.text().slice(0, s.size() - affix.size()));
  return self;
}

template <char kAlign>
Value justify(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "justify", args, {"", ""}, 1);
  Text fill(" ", false);
  if (const Text* t = p.text(1)) fill = *t;
  if (count_chars(fill.view()) != 1) rt.error("the fill character must be exactly one character long");
  return like(rt, self, padded(rt, self.text(), p.integer(0, 0), fill, kAlign));
}

Value zfill(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "zfill", args, {""}, 1);
  const Text& t = self.text();
  const bool sign = t.view().starts_with('-') || t.view().starts_with('+');
  Text out = t.slice(0, sign);
  out.append(padded(rt, t.slice(sign, t.size() - sign), p.integer(0, 0) - sign, Text("0", false), '>'));
  return like(rt, self, std::move(out));
}

Value expandtabs(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "expandtabs", args, {"tabsize"});
  const Int size = p.integer(0, 8);
  if (size > 1000) rt.error("expandtabs(): the size is too large");
  Text out;
  Int column = 0;
  const Text& t = self.text();
  for (size_t pos = 0; pos < t.size();) {
    const size_t n = char_bytes(static_cast<unsigned char>(t.view()[pos]));
    const char c = t.view()[pos];
    const Int spaces = size > 0 ? size - column % size : 0;
    if (c == '\t') out.append(std::string(size_t(spaces), ' '), t.user_at(pos)), column += spaces;
    else out.append(t, pos, n), column = c == '\n' || c == '\r' ? 0 : column + 1;
    pos += n;
    rt.bound(out.size());
  }
  return like(rt, self, std::move(out));
}

template <bool (*kTest)(char32_t)>
Value all_are(Runtime& rt, const Value& self, const Args& args) {
  const Params p(rt, "is", args, {});
  const std::string_view s = self.str();
  rt.step(s.size() / 16);
  for (size_t pos = 0; pos < s.size(); pos += char_bytes(static_cast<unsigned char>(s[pos])))
    if (!kTest(char_at(s, pos))) return Value::of(false);
  return Value::of(!s.empty());
}
bool is_alnum(char32_t c) { return c != '_' && is_word(c); }
Value isascii(Runtime&, const Value& self, const Args&) {
  return Value::of(std::all_of(self.str().begin(), self.str().end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}
Value islower(Runtime&, const Value& self, const Args&) { return Value::of(all_lower(self.str())); }
Value isupper(Runtime&, const Value& self, const Args&) { return Value::of(all_upper(self.str())); }
Value istitle(Runtime& rt, const Value& self, const Args&) {
  const std::string_view s = self.str();
  bool any = false, after_cased = false;
  for (size_t pos = 0; pos < s.size(); pos += char_bytes(static_cast<unsigned char>(s[pos]))) {
    const char32_t c = char_at(s, pos);
    const bool up = is_upper(c) || is_title(c), low = is_lower(c);
    if ((up && after_cased) || (low && !after_cased)) return Value::of(false);
    any |= after_cased = up || low;
  }
  rt.step(s.size() / 16);
  return Value::of(any);
}

}  // namespace

bool all_lower(std::string_view s) {
  bool any = false;
  for (size_t pos = 0; pos < s.size(); pos += char_bytes(static_cast<unsigned char>(s[pos]))) {
    const char32_t c = char_at(s, pos);
    if (is_upper(c) || is_title(c)) return false;
    any |= is_lower(c);
  }
  return any;
}
bool all_upper(std::string_view s) {
  bool any = false;
  for (size_t pos = 0; pos < s.size(); pos += char_bytes(static_cast<unsigned char>(s[pos]))) {
    const char32_t c = char_at(s, pos);
    if (is_lower(c) || is_title(c)) return false;
    any |= is_upper(c);
  }
  return any;
}

Text padded(Runtime& rt, const Text& t, Int width, const Text& fill, char align) {
  const Int missing = width - Int(count_chars(t.view()));
  if (missing <= 0) return t;
  if (missing > Int(rt.limits.max_output_bytes)) rt.bound(UINT64_MAX);
  rt.bound(t.size() + uint64_t(missing) * fill.size());
  rt.step(uint64_t(missing) / 8);
  // As Python centres: the odd one goes left when the width is odd too.
  const Int left = align == '<' ? 0 : align == '>' ? missing : align == '^' ? missing / 2 : missing / 2 + (missing & width & 1);
  Text out;
  for (Int i = 0; i < left; i++) out.append(fill);
  out.append(t);
  for (Int i = left; i < missing; i++) out.append(fill);
  return out;
}

Builtin find_string_method(std::string_view name) {
  static constexpr std::pair<std::string_view, Builtin> methods[] = {
      {"capitalize", capitalize}, {"casefold", change_case<Case::fold>}, {"center", justify<'c'>}, {"count", count},
      {"endswith", startswith<true>}, {"expandtabs", expandtabs}, {"find", find<Find::find>}, {"format", str_format},
      {"index", find<Find::index>}, {"isalnum", all_are<is_alnum>}, {"isalpha", all_are<is_alpha>}, {"isascii", isascii},
      {"isdecimal", all_are<is_decimal>}, {"isdigit", all_are<is_digit>}, {"islower", islower},
      {"isnumeric", all_are<is_numeric>}, {"isspace", all_are<is_space>}, {"istitle", istitle}, {"isupper", isupper},
      {"join", join}, {"ljust", justify<'<'>}, {"lower", change_case<Case::lower>}, {"lstrip", strip<true, false>},
      {"partition", partition<false>}, {"removeprefix", remove_affix<true>}, {"removesuffix", remove_affix<false>},
      {"replace", replace}, {"rfind", find<Find::rfind>}, {"rindex", find<Find::rindex>}, {"rjust", justify<'>'>},
      {"rpartition", partition<true>}, {"rsplit", split<true>}, {"rstrip", strip<false, true>}, {"split", split<false>},
      {"splitlines", splitlines}, {"startswith", startswith<false>}, {"strip", strip<true, true>}, {"swapcase", swapcase},
      {"title", title}, {"upper", change_case<Case::upper>}, {"zfill", zfill},
  };
  for (auto& [n, f] : methods)
    if (n == name) return f;
  return nullptr;
}

}  // namespace tealight::jinja
