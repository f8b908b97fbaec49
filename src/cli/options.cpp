#include "src/cli/options.h"

#include <charconv>
#include <cmath>

#include "src/base/error.h"

namespace tealight::cli {

Args::Args(const CommandInfo& command, std::span<char* const> argv) : command_(command) {
  bool options_end = false;
  for (size_t i = 0; i < argv.size(); i++) {
    std::string_view a = argv[i];
    bool number = a.size() > 1 && a[0] == '-' && (a[1] == '.' || (a[1] >= '0' && a[1] <= '9'));
    if (options_end || a.size() < 2 || a[0] != '-' || number) {
      positional_.push_back(a);
      continue;
    }
    if (a == "--") {
      options_end = true;
      continue;
    }
    if (a == "--help" || a == "-h") {
      help_ = true;
      continue;
    }
    std::string_view name = a, value;
    bool has_value = false;
    if (size_t eq = a.find('='); a.starts_with("--") && eq != a.npos) {
      name = a.substr(0, eq);
      value = a.substr(eq + 1);
      has_value = true;
    }
    const Option* found = nullptr;
    for (const Option& o : command.options)
      if ((name.starts_with("--") && name.substr(2) == o.name) || (o.alias[0] && name == o.alias)) found = &o;
    if (!found) fail(Code::usage, command.name, ": unknown option ", name);
    if (!found->value[0]) {
      if (has_value) fail(Code::usage, command.name, ": ", name, " takes no value");
      given_.emplace_back(found->name, "");
      continue;
    }
    if (!has_value) {
      if (++i >= argv.size()) fail(Code::usage, command.name, ": ", name, " needs a value (", found->value, ")");
      value = argv[i];
    }
    given_.emplace_back(found->name, value);
  }
}

std::optional<std::string_view> Args::text(std::string_view name) const {
  for (size_t i = given_.size(); i-- > 0;)
    if (given_[i].first == name) return given_[i].second;
  return std::nullopt;
}

std::vector<std::string_view> Args::all(std::string_view name) const {
  std::vector<std::string_view> values;
  for (const auto& [key, value] : given_)
    if (key == name) values.push_back(value);
  return values;
}

std::optional<int64_t> Args::integer(std::string_view name, int64_t low, int64_t high) const {
  auto t = text(name);
  if (!t) return std::nullopt;
  int64_t v = 0;
  auto [p, e] = std::from_chars(t->data(), t->data() + t->size(), v);
  if (e != std::errc() || p != t->data() + t->size() || v < low || v > high)
    fail(Code::usage, command_.name, ": --", name, ": ", quoted(*t), " is not a whole number from ", low, " to ", high);
  return v;
}

std::optional<double> Args::number(std::string_view name, double low, double high) const {
  auto t = text(name);
  if (!t) return std::nullopt;
  double v = 0;
  auto [p, e] = std::from_chars(t->data(), t->data() + t->size(), v);
  if (e != std::errc() || p != t->data() + t->size() || !(v >= low && v <= high))
    fail(Code::usage, command_.name, ": --", name, ": ", quoted(*t), " is not a number from ", low, " to ", high);
  return v;
}

std::optional<std::string_view> Args::word(std::string_view name, std::span<const std::string_view> words) const {
  auto t = text(name);
  if (!t) return std::nullopt;
  std::string list;
  for (std::string_view w : words) {
    if (w == *t) return w;
    list += cat(list.empty() ? "" : ", ", w);
  }
  fail(Code::usage, command_.name, ": --", name, ": ", quoted(*t), " is none of ", list);
}

std::string help_text(const CommandInfo& c) {
  std::string s = cat("usage: tealight ", c.name, " ", c.synopsis, c.options.empty() ? "" : " [options]", "\n\n", c.summary, "\n");
  if (c.details[0]) s += cat("\n", c.details, "\n");
  s += "\noptions:\n";
  auto line = [&](std::string left, std::string_view help) {
    left.resize(std::max<size_t>(left.size() + 2, 30), ' ');
    s += cat("  ", left, help, "\n");
  };
  for (const Option& o : c.options)
    line(cat("--", o.name, o.alias[0] ? ", " : "", o.alias, o.value[0] ? " " : "", o.value), o.help);
  line("--help, -h", "this text");
  return s;
}

}  // namespace tealight::cli
