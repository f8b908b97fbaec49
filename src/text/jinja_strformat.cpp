// "..." % values (docs.python.org/3/library/stdtypes.html#printf-style-string-formatting) and "...".format(...)
// (docs.python.org/3/library/string.html#format-string-syntax).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "src/text/jinja_strings.h"

namespace tealight::jinja {
namespace {

struct Spec {
  Text fill{" ", false};
  char align = 0, sign = '-', group = 0, type = 0;
  bool alternate = false, zero = false;
  Int width = 0, precision = -1;
};

constexpr Int kMaxPrecision = 1000;

std::string_view sign_text(const Spec& s, bool negative) { return negative ? "-" : s.sign == '+' ? "+" : s.sign == ' ' ? " " : ""; }

// Pads a number: zeros go between its sign (or 0x) and its digits.
Text pad_number(Runtime& rt, const Spec& s, std::string prefix, std::string digits, bool user) {
  if (s.group) {
    const size_t step = s.type == 'x' || s.type == 'X' || s.type == 'b' || s.type == 'o' ? 4 : 3;
    size_t end = digits.find_first_not_of("0123456789abcdefABCDEF");
    if (end == digits.npos || s.type == 'e' || s.type == 'E') end = std::min(digits.find_first_not_of("0123456789"), digits.size());
    for (size_t at = end; at > step;) digits.insert(at -= step, 1, s.group);
  }
  const char align = s.align ? s.align : s.zero ? '=' : '>';
  const Text fill = s.zero && !s.align ? Text("0", false) : s.fill;
  if (align != '=') return padded(rt, Text(prefix + digits, user), s.width, fill, align);
  Text out(prefix, user);
  out.append(padded(rt, Text(digits, user), s.width - Int(prefix.size()), fill, '>'));
  return out;
}

Text format_integer(Runtime& rt, const Spec& s, const Value& v) {
  const bool negative = v.integer() < 0;
  auto u = negative ? -static_cast<unsigned __int128>(v.integer()) : static_cast<unsigned __int128>(v.integer());
  const unsigned base = (s.type | 0x20) == 'x' ? 16 : s.type == 'o' ? 8 : s.type == 'b' ? 2 : 10;
  const char* const alphabet = s.type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do digits += alphabet[size_t(u % base)];   // (indexing the conditional itself, GCC 12 goes wrong under UBSan)
  while ((u /= base) > 0);
  while (Int(digits.size()) < std::min(s.precision, kMaxPrecision)) digits += '0';
  std::reverse(digits.begin(), digits.end());
  std::string prefix(sign_text(s, negative));
  if (s.alternate && base != 10) (prefix += '0') += s.type;
  return pad_number(rt, s, std::move(prefix), std::move(digits), v.user());
}

Text format_double(Runtime& rt, const Spec& s, double d, bool user) {
  if (s.precision > kMaxPrecision) rt.error("the precision is too large");
  char buf[1500];
  const char type = s.type == '%' ? 'f' : s.type;
  const char pattern[] = {'%', '.', '*', type, 0}, alternate[] = {'%', '#', '.', '*', type, 0};
  std::string digits;
  if (!std::isfinite(d)) digits = std::isnan(d) ? "nan" : "inf";
  else if (type == 0 && s.precision < 0) digits = number_text(std::fabs(d));
  else {
    const double value = std::fabs(s.type == '%' ? d * 100 : d);
    const char general[] = {'%', '.', '*', 'g', 0};
    const int n = snprintf(buf, sizeof buf, type == 0 ? general : s.alternate ? alternate : pattern, int(s.precision < 0 ? 6 : s.precision), value);
    digits.assign(buf, size_t(std::clamp(n, 0, int(sizeof buf) - 1)));
    if (type == 0 && digits.find_first_of(".e") == digits.npos) digits += ".0";
  }
  if (type >= 'A' && type <= 'Z')
    for (char& c : digits) c = c >= 'a' && c <= 'z' ? char(c - 32) : c;
  const std::string prefix(sign_text(s, std::signbit(d) && !std::isnan(d)));
  if (s.type != '%') return pad_number(rt, s, prefix, digits, user);
  return pad_number(rt, s, prefix, digits + "%", user);
}

Text cut(const Text& t, Int precision) {
  if (precision < 0 || precision > Int(t.size())) return t;
  return t.slice(0, char_offset(t.view(), size_t(precision)));
}

// Digits of a width or precision; error when it could not be honoured anyway.
Int read_number(Runtime& rt, std::string_view s, size_t& pos) {
  Int n = 0;
  for (; pos < s.size() && s[pos] >= '0' && s[pos] <= '9'; pos++) {
    n = n * 10 + (s[pos] - '0');
    if (n > INT32_MAX) rt.error("too many decimal digits in format string");
  }
  return n;
}

// --- % --------------------------------------------------------------------------------------------------------------

struct Percent {
  Runtime& rt;
  const Text& format;
  const Value& arguments;
  bool markup;
  size_t used = 0;
  Text out;

  bool single() const { return !arguments.is(Type::tuple); }
  Value next() {
    const size_t n = single() ? 1 : arguments.items().size();
    if (used >= n) rt.error("not enough arguments for format string");
    return single() ? (used++, arguments) : arguments.items()[used++];
  }

  void conversion(size_t& pos) {   // pos: behind the %
    const std::string_view f = format.view();
    Spec s;
    Value value;
    bool have_value = false, left = false;
    if (pos < f.size() && f[pos] == '(') {
      const size_t close = f.find(')', pos);
      if (close == f.npos) rt.error("incomplete format key");
      if (!arguments.is(Type::dict)) rt.error("format requires a mapping");
      const std::string_view key = f.substr(pos + 1, close - pos - 1);
      const Value* found = arguments.dict().find(key);
      if (!found) rt.error("KeyError: ", quoted(key));
      value = *found;
      have_value = true;
      used = 1;
      pos = close + 1;
    }
    for (; pos < f.size(); pos++) {
      if (f[pos] == '-') left = true;
      else if (f[pos] == '+') s.sign = '+';
      else if (f[pos] == ' ') s.sign = s.sign == '+' ? '+' : ' ';
      else if (f[pos] == '0') s.zero = true;
      else if (f[pos] == '#') s.alternate = true;
      else break;
    }
    const auto size = [&] {
      if (pos >= f.size() || f[pos] != '*') return read_number(rt, f, pos);
      pos++;
      const Value v = next();
      if (!v.is_int()) rt.error("* wants int");
      return v.integer();
    };
    s.width = size();
    if (s.width < 0) left = true, s.width = -s.width;
    if (pos < f.size() && f[pos] == '.') pos++, s.precision = std::max<Int>(0, size());
    while (pos < f.size() && (f[pos] == 'l' || f[pos] == 'h' || f[pos] == 'L')) pos++;
    if (pos >= f.size()) rt.error("incomplete format");
    s.type = f[pos++];
    if (s.type == '%') return out.append("%", false);
    if (!have_value) value = next();
    if (left) s.align = '<', s.zero = false;
    convert(s, value);
  }

  void convert(Spec& s, const Value& v) {
    switch (s.type) {
      case 's': case 'r': case 'a': {
        Text t;
        if (s.type == 's') t = markup ? escaped(rt, v) : to_text(rt, v);
        else append_repr(rt, t, v);
        return out.append(padded(rt, cut(t, s.precision), s.width, s.fill, s.align ? s.align : '>'));
      }
      case 'c': {
        Text t;
        if (v.is_int() && v.integer() >= 0 && v.integer() < 0xd800) {
          std::string c;
          append_char(c, char32_t(v.integer()));
          t.append(c, v.user());
        } else if (v.is_string() && count_chars(v.str()) == 1) {
          t = v.text();
        } else {
          rt.error("%c requires int or char");
        }
        return out.append(padded(rt, t, s.width, s.fill, s.align ? s.align : '>'));
      }
      case 'd': case 'i': case 'u': case 'x': case 'X': case 'o': {
        const bool truncates = s.type == 'd' || s.type == 'i' || s.type == 'u';
        if (!v.is_int() && !(truncates && v.is_number() && std::fabs(v.number()) < 1e37))
          rt.error("%", s.type, " format: a number is required, not ", type_name(v));
        return out.append(format_integer(rt, s, v.is_int() ? v : Value::of(Int(v.number()), v.user())));
      }
      case 'f': case 'F': case 'e': case 'E': case 'g': case 'G':
        if (!v.is_number()) rt.error("must be real number, not ", type_name(v));
        return out.append(format_double(rt, s, v.number(), v.user()));
      default: rt.error("unsupported format character '", s.type, "'");
    }
  }
};

// --- {} -------------------------------------------------------------------------------------------------------------

struct Braces {
  Runtime& rt;
  const Args& args;
  Int automatic = 0;   // -1: fields are numbered by hand

  void format(const Text& t, Text& out, int depth) {
    if (depth > 2) rt.error("max string recursion exceeded");
    const std::string_view f = t.view();
    for (size_t pos = 0; pos < f.size();) {
      const size_t brace = std::min(f.find_first_of("{}", pos), f.size());
      out.append(t, pos, brace - pos);
      rt.bound(out.size());
      pos = brace;
      if (pos >= f.size()) return;
      if (pos + 1 < f.size() && f[pos + 1] == f[pos]) {
        out.append(t, pos, 1);
        pos += 2;
      } else if (f[pos] == '}') {
        rt.error("single '}' encountered in format string");
      } else {
        field(t, pos, out, depth);
      }
    }
  }

  void field(const Text& t, size_t& pos, Text& out, int depth) {
    const std::string_view f = t.view();
    const size_t begin = pos + 1;
    size_t end = begin;
    for (int open = 1; end < f.size(); end++) {
      if (f[end] == '{') open++;
      if (f[end] == '}' && --open == 0) break;
    }
    if (end >= f.size()) rt.error("expected '}' before end of string");
    size_t name_end = begin;
    for (bool bracket = false; name_end < end && (bracket || (f[name_end] != '!' && f[name_end] != ':')); name_end++)
      bracket = f[name_end] == '[' || (bracket && f[name_end] != ']');
    Value v = lookup(f.substr(begin, name_end - begin));
    if (name_end < end && f[name_end] == '!') {
      const char how = name_end + 1 < end ? f[name_end + 1] : 0;
      Text converted;
      if (how == 'r' || how == 'a') append_repr(rt, converted, v);
      else if (how == 's') converted = to_text(rt, v);
      else rt.error("unknown conversion specifier in format string");
      v = rt.text(std::move(converted));
      name_end += 2;
      if (name_end < end && f[name_end] != ':') rt.error("expected ':' after conversion specifier");
    }
    Text spec;
    if (name_end < end) format(t.slice(name_end + 1, end - name_end - 1), spec, depth + 1);
    out.append(apply(v, spec));
    pos = end + 1;
  }

  Value lookup(std::string_view name) {
    size_t pos = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, pos);
    Value v;
    const bool numbered = !first.empty() && first.find_first_not_of("0123456789") == first.npos;
    if (first.empty() || numbered) {
      if (first.empty() ? automatic < 0 : automatic > 0) rt.error("cannot mix automatic field numbering and manual field specification");
      size_t at = 0;
      const Int i = first.empty() ? automatic++ : read_number(rt, first, at);
      if (numbered) automatic = -1;
      if (i >= Int(args.positional.size())) rt.error("replacement index ", integer_text(i), " out of range for positional args tuple");
      v = args.positional[size_t(i)];
    } else {
      auto found = std::find_if(args.named.begin(), args.named.end(), [&](auto& n) { return n.first == first; });
      if (found == args.named.end()) rt.error("KeyError: ", quoted(first));
      v = found->second;
    }
    while (pos < name.size()) {
      if (name[pos] == '.') {
        const size_t stop = std::min(name.find_first_of(".[", pos + 1), name.size());
        v = get_attribute(rt, v, name.substr(pos + 1, stop - pos - 1));
        pos = stop;
      } else {
        const size_t close = name.find(']', pos);
        if (close == name.npos) rt.error("missing ']' in format string");
        const std::string_view key = name.substr(pos + 1, close - pos - 1);
        size_t at = 0;
        const bool index = !key.empty() && key.find_first_not_of("0123456789") == key.npos;
        v = get_item(rt, v, index ? Value::of(read_number(rt, key, at)) : rt.text(key, false));
        pos = close + 1;
      }
    }
    return v;
  }

  Text apply(const Value& v, const Text& spec) {
    if (spec.empty()) return to_text(rt, v);
    Spec s = parse(spec);
    if (v.is_string() || v.is_undefined()) {
      if ((s.type && s.type != 's') || s.align == '=' || s.sign != '-' || s.group) rt.error("invalid format specifier for a string");
      if (s.zero && s.fill.view() == " ") s.fill = Text("0", false);
      return padded(rt, cut(to_text(rt, v), s.precision), s.width, s.fill, s.align ? s.align : '<');
    }
    if (v.is(Type::boolean) && s.type == 0) return padded(rt, Text(integer_text(v.integer()), v.user()), s.width, s.fill, s.align ? s.align : '>');
    if (v.is_int() && (s.type == 0 || std::string_view("dxXobn").find(s.type) != std::string_view::npos)) {
      if (s.precision >= 0) rt.error("precision not allowed in integer format specifier");
      return format_integer(rt, s, v);
    }
    if (v.is_int() && s.type == 'c') {
      std::string c;
      if (v.integer() < 0 || v.integer() >= 0xd800) rt.error("%c arg not in range");
      append_char(c, char32_t(v.integer()));
      return padded(rt, Text(c, v.user()), s.width, s.fill, s.align ? s.align : '<');
    }
    if (v.is_number() && (s.type == 0 || std::string_view("eEfFgGn%").find(s.type) != std::string_view::npos)) {
      if (s.type == 'n') s.type = 'g';
      return format_double(rt, s, v.number(), v.user());
    }
    rt.error("unsupported format string passed to ", type_name(v), ".__format__");
  }

  // [[fill]align][sign][#][0][width][grouping][.precision][type]
  Spec parse(const Text& spec) {
    Spec s;
    const std::string_view f = spec.view();
    const auto is_align = [&](size_t at) { return at < f.size() && std::string_view("<>=^").find(f[at]) != std::string_view::npos; };
    size_t pos = 0;
    const size_t first = char_bytes(static_cast<unsigned char>(f[0]));
    if (is_align(first)) s.fill = spec.slice(0, first), s.align = f[first], pos = first + 1;
    else if (is_align(0)) s.align = f[0], pos = 1;
    if (pos < f.size() && (f[pos] == '+' || f[pos] == '-' || f[pos] == ' ')) s.sign = f[pos++];
    if (pos < f.size() && f[pos] == '#') s.alternate = true, pos++;
    if (pos < f.size() && f[pos] == '0') {
      s.zero = true;
      if (s.align && first + 1 != pos && s.fill.view() == " ") s.fill = Text("0", false);
      pos++;
    }
    s.width = read_number(rt, f, pos);
    if (pos < f.size() && (f[pos] == ',' || f[pos] == '_')) s.group = f[pos++];
    if (pos < f.size() && f[pos] == '.') {
      const size_t before = ++pos;
      s.precision = read_number(rt, f, pos);
      if (pos == before) rt.error("format specifier missing precision");
    }
    if (pos < f.size()) s.type = f[pos++];
    if (pos < f.size()) rt.error("invalid format specifier ", quoted(f));
    return s;
  }
};

}  // namespace

Value percent_format(Runtime& rt, const Value& format, const Value& arguments) {
  Percent p{rt, format.text(), arguments, format.string().markup};
  const std::string_view f = format.str();
  for (size_t pos = 0; pos < f.size();) {
    const size_t percent = std::min(f.find('%', pos), f.size());
    p.out.append(format.text(), pos, percent - pos);
    rt.bound(p.out.size());
    rt.step();
    pos = percent + 1;
    if (percent < f.size()) p.conversion(pos);
  }
  const size_t given = p.single() ? size_t(!arguments.is(Type::dict) && !arguments.is(Type::list) && !arguments.is(Type::range) && !arguments.is_undefined()) : arguments.items().size();
  if (p.used < given) rt.error("not all arguments converted during string formatting");
  return like(rt, format, std::move(p.out));
}

Value str_format(Runtime& rt, const Value& self, const Args& args) {
  Braces b{rt, args};
  Text out;
  b.format(self.text(), out, 0);
  return like(rt, self, std::move(out));
}

}  // namespace tealight::jinja
