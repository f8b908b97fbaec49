// Values as text: Python's str() and repr(), JSON, % and {} formatting, and strftime.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "src/text/jinja_value.h"

namespace tealight::jinja {

std::string integer_text(Int i) {
  if (i == 0) return "0";
  std::string s;
  auto u = i < 0 ? -static_cast<unsigned __int128>(i) : static_cast<unsigned __int128>(i);
  for (; u > 0; u /= 10) s += char('0' + int(u % 10));
  if (i < 0) s += '-';
  std::reverse(s.begin(), s.end());
  return s;
}

std::string number_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buf[40];
  const char* end = std::to_chars(buf, buf + sizeof buf, d, std::chars_format::scientific).ptr;
  std::string_view s(buf, size_t(end - buf));
  std::string out(s[0] == '-' ? "-" : "");
  if (s[0] == '-') s.remove_prefix(1);
  const size_t e = s.find('e');
  int exponent = 0;
  std::from_chars(s.data() + e + 1 + (s[e + 1] == '+'), s.data() + s.size(), exponent);
  std::string digits(1, s[0]);
  if (e > 2) digits += s.substr(2, e - 2);
  if (exponent < -4 || exponent >= 16) {   // CPython's rule for repr of a float
    out += digits[0];
    if (digits.size() > 1) (out += '.') += digits.substr(1);
    out += exponent < 0 ? "e-" : "e+";
    const std::string x = std::to_string(std::abs(exponent));
    return out + (x.size() < 2 ? "0" : "") + x;
  }
  if (exponent < 0) return out + "0." + std::string(size_t(-exponent - 1), '0') + digits;
  if (digits.size() <= size_t(exponent) + 1) return out + digits + std::string(size_t(exponent) + 1 - digits.size(), '0') + ".0";
  return out + digits.substr(0, size_t(exponent) + 1) + "." + digits.substr(size_t(exponent) + 1);
}

bool parse_number(std::string_view s, double& out) {
  std::string digits;
  for (size_t pos = leading_space(s), end = s.size() - trailing_space(s.substr(pos)); pos < end; pos++) {
    const char c = s[pos];
    const auto is_digit_at = [&](size_t at) { return at < end && s[at] >= '0' && s[at] <= '9'; };
    if (c == '_' && pos > 0 && is_digit_at(pos - 1) && is_digit_at(pos + 1)) continue;
    if (c == 'x' || c == 'X' || c == '(' || c == 0) return false;   // what strtod takes beyond Python
    digits += c;
  }
  char* end = nullptr;
  out = strtod(digits.c_str(), &end);
  return !digits.empty() && !is_space(static_cast<unsigned char>(digits[0])) && end == digits.c_str() + digits.size();
}

namespace {

void append_hex(std::string& out, uint32_t v, int width) {
  for (int shift = (width - 1) * 4; shift >= 0; shift -= 4) out += "0123456789abcdef"[v >> shift & 15];
}

void append_quoted(Runtime& rt, Text& out, const Text& t) {
  const std::string_view s = t.view();
  const char quote = s.find('\'') != s.npos && s.find('"') == s.npos ? '"' : '\'';
  rt.step(s.size() / 16);
  out.append(std::string_view(&quote, 1), t.any_user());
  t.each_part([&](std::string_view part, bool user) {
    std::string buf;
    for (size_t pos = 0; pos < part.size();) {
      const char32_t c = char_at(part, pos);
      pos += char_bytes(static_cast<unsigned char>(part[pos]));
      if (c == '\\' || c == char32_t(quote)) (buf += '\\') += char(c);
      else if (c == '\n') buf += "\\n";
      else if (c == '\r') buf += "\\r";
      else if (c == '\t') buf += "\\t";
      else if (is_printable(c)) append_char(buf, c);
      else if (c < 0x100) buf += "\\x", append_hex(buf, c, 2);
      else if (c < 0x10000) buf += "\\u", append_hex(buf, c, 4);
      else buf += "\\U", append_hex(buf, c, 8);
    }
    out.append(buf, user);
  });
  out.append(std::string_view(&quote, 1), t.any_user());
}

template <class Items, class F>
void append_list(Text& out, std::string_view open, std::string_view close, bool user, const Items& items, F item) {
  out.append(open, user);
  bool first = true;
  for (auto& i : items) {
    if (!first) out.append(", ", user);
    first = false;
    item(i);
  }
  out.append(close, user);
}

void append_dict(Runtime& rt, Text& out, const Dict& d, bool user, int depth) {
  append_list(out, "{", "}", user, d.entries, [&](auto& entry) {
    append_repr(rt, out, entry.first, depth + 1);
    out.append(": ", user);
    append_repr(rt, out, entry.second, depth + 1);
  });
}

}  // namespace

void append_repr(Runtime& rt, Text& out, const Value& v, int depth) {
  rt.check_depth(depth);
  rt.step();
  rt.bound(out.size());
  const auto item = [&](const Value& e) { append_repr(rt, out, e, depth + 1); };
  switch (v.type()) {
    case Type::undefined: return out.append("Undefined", false);
    case Type::none: return out.append("None", v.user());
    case Type::boolean: return out.append(v.integer() ? "True" : "False", v.user());
    case Type::integer: return out.append(integer_text(v.integer()), v.user());
    case Type::number: return out.append(number_text(v.number()), v.user());
    case Type::string:
      if (!v.string().markup) return append_quoted(rt, out, v.text());
      out.append("Markup(", false);
      append_quoted(rt, out, v.text());
      return out.append(")", false);
    case Type::list: return append_list(out, "[", "]", v.user(), v.items(), item);
    case Type::tuple: return append_list(out, "(", v.items().size() == 1 ? ",)" : ")", v.user(), v.items(), item);
    case Type::dict: return append_dict(rt, out, v.dict(), v.user(), depth);
    case Type::range: {
      const Range& r = v.range();
      out.append(cat("range(", integer_text(r.start), ", ", integer_text(r.start + r.count * r.step)), false);
      if (r.step != 1) out.append(cat(", ", integer_text(r.step)), false);
      return out.append(")", false);
    }
    case Type::view: {
      static constexpr std::string_view names[] = {"dict_keys([", "dict_values([", "dict_items(["};
      return append_list(out, names[v.view().kind], "])", v.user(), iterate(rt, v), item);
    }
    case Type::space:
      out.append("<Namespace ", false);
      append_dict(rt, out, *v.space().members, false, depth);
      return out.append(">", false);
    default: out.append(cat("<", type_name(v), ">"), false);
  }
}

void append_str(Runtime& rt, Text& out, const Value& v) {
  if (v.is_undefined()) return;
  if (!v.is_string()) return append_repr(rt, out, v);
  rt.bound(out.size() + v.text().size());
  out.append(v.text());
}

Text to_text(Runtime& rt, const Value& v) {
  if (v.is_string()) return v.text();
  Text t;
  append_str(rt, t, v);
  return t;
}

Text escaped(Runtime& rt, const Value& v) {
  Text t = to_text(rt, v);
  if (v.is_string() && v.string().markup) return t;
  Text out;
  t.each_part([&](std::string_view part, bool user) {
    std::string buf;
    for (char c : part) {
      if (c == '&') buf += "&amp;";
      else if (c == '<') buf += "&lt;";
      else if (c == '>') buf += "&gt;";
      else if (c == '"') buf += "&#34;";
      else if (c == '\'') buf += "&#39;";
      else buf += c;
    }
    out.append(buf, user);
  });
  rt.bound(out.size());
  return out;
}

// --- JSON -----------------------------------------------------------------------------------------------------------

namespace {

// json.dumps as Python writes it, without ASCII escapes unless asked for.
struct JsonText {
  Runtime& rt;
  Text out;
  bool ascii = false, sort = false, pretty = false;
  std::string indent, item_separator = ", ", key_separator = ": ";

  void string(const Text& t) {
    out.append("\"", t.any_user());
    t.each_part([&](std::string_view part, bool user) {
      std::string buf;
      for (size_t pos = 0; pos < part.size();) {
        const char32_t c = char_at(part, pos);
        pos += char_bytes(static_cast<unsigned char>(part[pos]));
        static constexpr std::string_view plain = "\"\\\n\r\t\f\b", letters = "\"\\nrtfb";
        if (const size_t i = c < 0x80 ? plain.find(char(c)) : plain.npos; i != plain.npos) (buf += '\\') += letters[i];
        else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000 && c != 0x7f)) buf += "\\u", append_hex(buf, c, 4);
        else if (ascii && c >= 0x10000) {
          buf += "\\u", append_hex(buf, 0xd800 + ((c - 0x10000) >> 10), 4);
          buf += "\\u", append_hex(buf, 0xdc00 + ((c - 0x10000) & 0x3ff), 4);
        } else append_char(buf, c);
      }
      out.append(buf, user);
    });
    out.append("\"", t.any_user());
    rt.step(t.size() / 16);
    rt.bound(out.size());
  }

  void newline(int depth, bool user) {
    if (!pretty) return;
    out.append("\n", user);
    rt.bound(out.size() + indent.size() * size_t(depth));
    for (int i = 0; i < depth; i++) out.append(indent, user);
  }

  std::string_view scalar(const Value& v, std::string& buf) const {
    switch (v.type()) {
      case Type::none: return "null";
      case Type::boolean: return v.integer() ? "true" : "false";
      case Type::integer: return buf = integer_text(v.integer());
      case Type::number:
        if (std::isnan(v.number())) return "NaN";
        if (std::isinf(v.number())) return v.number() < 0 ? "-Infinity" : "Infinity";
        return buf = number_text(v.number());
      default: return {};
    }
  }

  void value(const Value& v, int depth) {
    rt.check_depth(depth);
    rt.step();
    std::string buf;
    if (v.is_string()) return string(v.text());
    if (v.is_sequence()) {
      bool first = true;
      out.append("[", v.user());
      for (const Value& e : v.items()) {
        if (!first) out.append(item_separator, v.user());
        first = false;
        newline(depth + 1, v.user());
        value(e, depth + 1);
      }
      if (!first) newline(depth, v.user());
      return out.append("]", v.user());
    }
    if (v.is(Type::dict)) return dict(v, depth);
    const std::string_view text = scalar(v, buf);
    if (text.empty()) rt.error("Object of type ", type_name(v), " is not JSON serializable");
    out.append(text, v.user());
  }

  void dict(const Value& v, int depth) {
    auto entries = v.dict().entries;
    if (sort) {
      std::stable_sort(entries.begin(), entries.end(), [&](auto& a, auto& b) { return compare(rt, a.first, b.first) == -1; });
      rt.step(entries.size());
    }
    bool first = true;
    out.append("{", v.user());
    for (auto& [key, e] : entries) {
      if (!first) out.append(item_separator, v.user());
      first = false;
      newline(depth + 1, v.user());
      std::string buf;
      if (key.is_string()) string(key.text());
      else if (const std::string_view k = scalar(key, buf); !k.empty()) string(Text(k, key.user()));
      else rt.error("keys must be str, int, float, bool or None, not ", type_name(key));
      out.append(key_separator, v.user());
      value(e, depth + 1);
    }
    if (!first) newline(depth, v.user());
    out.append("}", v.user());
  }
};

}  // namespace

Value to_json(Runtime& rt, const Value& v, const Args& args) {
  const Params p(rt, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonText json{rt, {}};
  json.ascii = p.flag(0);
  json.sort = p.flag(3);
  if (p[1] && !p[1]->is_none()) {
    json.pretty = true;
    json.item_separator = ",";
    if (p[1]->is_string()) {
      json.indent = p[1]->str();
    } else {
      const Int n = p.integer(1, 0);
      if (n > Int(rt.limits.max_output_bytes)) rt.bound(UINT64_MAX);
      json.indent.assign(n > 0 ? size_t(n) : 0, ' ');
    }
  }
  if (p[2] && !p[2]->is_none()) {
    const std::vector<Value> s = iterate(rt, *p[2]);
    if (s.size() != 2 || !s[0].is_string() || !s[1].is_string()) rt.error("tojson(): separators are two strings");
    json.item_separator = s[0].str();
    json.key_separator = s[1].str();
  }
  json.value(v, 0);
  return rt.text(std::move(json.out));
}

// --- strftime -------------------------------------------------------------------------------------------------------

namespace {

constexpr std::string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};

// "YYYY-MM-DD hh:mm:ss"; the rest of the fields follow.
tm parse_now(const Runtime& rt) {
  tm t{};
  if (rt.now.empty()) {
    const time_t now = time(nullptr);
    localtime_r(&now, &t);
    return t;
  }
  static constexpr struct { size_t at, n; int low, high; } fields[] = {{0, 4, 1, 9999}, {5, 2, 1, 12}, {8, 2, 1, 31}, {11, 2, 0, 23}, {14, 2, 0, 59}, {17, 2, 0, 60}};
  int* const slots[] = {&t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour, &t.tm_min, &t.tm_sec};
  bool valid = rt.now.size() == 19 && rt.now[4] == '-' && rt.now[7] == '-' && rt.now[10] == ' ' && rt.now[13] == ':' && rt.now[16] == ':';
  for (size_t i = 0; valid && i < std::size(fields); i++) {
    const char* end = rt.now.data() + fields[i].at + fields[i].n;
    const auto r = std::from_chars(rt.now.data() + fields[i].at, end, *slots[i]);
    valid = r.ec == std::errc() && r.ptr == end && *slots[i] >= fields[i].low && *slots[i] <= fields[i].high;
  }
  if (!valid) rt.error("now is ", quoted(rt.now), ", expected \"YYYY-MM-DD hh:mm:ss\"");
  const int y = t.tm_year, m = t.tm_mon, d = t.tm_mday;
  static constexpr int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  const bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
  t.tm_yday = before[m - 1] + d - 1 + (leap && m > 2);
  const int prior = y - 1;
  t.tm_wday = (prior * 365 + prior / 4 - prior / 100 + prior / 400 + t.tm_yday + 1) % 7;
  t.tm_year -= 1900;
  t.tm_mon -= 1;
  return t;
}

std::string padded(int v, size_t width, char pad) {
  std::string s = std::to_string(v);
  if (pad && s.size() < width) s.insert(0, width - s.size(), pad);
  return s;
}

// One conversion as the C locale writes it. `pad` is 0 for none.
bool append_time(std::string& out, const tm& t, char c, char flag) {
  const auto number = [&](int v, size_t width, char pad = '0') {
    out += padded(v, width, flag == '-' ? '\0' : flag == '_' ? ' ' : flag == '0' ? '0' : pad);
  };
  const auto all = [&](std::string_view format) {
    for (size_t i = 0; i < format.size(); i++)
      if (format[i] == '%') append_time(out, t, format[++i], 0);
      else out += format[i];
  };
  const int hour12 = t.tm_hour % 12 ? t.tm_hour % 12 : 12;
  switch (c) {
    case 'a': out += kDays[t.tm_wday].substr(0, 3); break;
    case 'A': out += kDays[t.tm_wday]; break;
    case 'b': case 'h': out += kMonths[t.tm_mon].substr(0, 3); break;
    case 'B': out += kMonths[t.tm_mon]; break;
    case 'c': all("%a %b %e %H:%M:%S %Y"); break;
    case 'C': number((t.tm_year + 1900) / 100, 2); break;
    case 'd': number(t.tm_mday, 2); break;
    case 'D': case 'x': all("%m/%d/%y"); break;
    case 'e': number(t.tm_mday, 2, ' '); break;
    case 'F': all("%Y-%m-%d"); break;
    case 'H': number(t.tm_hour, 2); break;
    case 'I': number(hour12, 2); break;
    case 'j': number(t.tm_yday + 1, 3); break;
    case 'k': number(t.tm_hour, 2, ' '); break;
    case 'l': number(hour12, 2, ' '); break;
    case 'm': number(t.tm_mon + 1, 2); break;
    case 'M': number(t.tm_min, 2); break;
    case 'n': out += '\n'; break;
    case 'p': out += t.tm_hour < 12 ? "AM" : "PM"; break;
    case 'P': out += t.tm_hour < 12 ? "am" : "pm"; break;
    case 'r': all("%I:%M:%S %p"); break;
    case 'R': all("%H:%M"); break;
    case 'S': number(t.tm_sec, 2); break;
    case 't': out += '\t'; break;
    case 'T': case 'X': all("%H:%M:%S"); break;
    case 'u': number(t.tm_wday ? t.tm_wday : 7, 1); break;
    case 'U': number((t.tm_yday + 7 - t.tm_wday) / 7, 2); break;
    case 'w': number(t.tm_wday, 1); break;
    case 'W': number((t.tm_yday + 7 - (t.tm_wday + 6) % 7) / 7, 2); break;
    case 'y': number((t.tm_year + 1900) % 100, 2); break;
    case 'Y': number(t.tm_year + 1900, 1); break;
    case 'z': case 'Z': break;   // the clock is local time without a zone
    case '%': out += '%'; break;
    default: return false;
  }
  return true;
}

}  // namespace

Value format_time(Runtime& rt, const Value&, const Args& args) {
  const Params p(rt, "strftime_now", args, {"format"}, 1);
  const Text* format = p.text(0);
  if (!format) rt.error("strftime_now(): expected a string");
  const tm t = parse_now(rt);
  const std::string_view s = format->view();
  std::string out;
  for (size_t i = 0; i < s.size(); i++) {
    size_t at = i + 1;
    char flag = 0;
    if (s[i] == '%' && at < s.size() && (s[at] == '-' || s[at] == '_' || s[at] == '0')) flag = s[at++];
    if (s[i] == '%' && at < s.size() && append_time(out, t, s[at], flag)) i = at;
    else out += s[i];
  }
  return rt.text(out, format->any_user());
}

}  // namespace tealight::jinja
