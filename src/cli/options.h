// Command-line options: a command declares a table; parsing, --help and errors follow from it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tealight::cli {

struct Option {
  const char* name;        // "max-tokens", given as --max-tokens 5 or --max-tokens=5
  const char* alias;       // another spelling with its dashes ("-n"; "--temp"), or ""
  const char* value;       // what the help calls the value ("N"), or "" for a flag
  const char* help;        // one line
};

struct CommandInfo {
  const char* name;        // "run"
  const char* synopsis;    // "MODEL PROMPT"
  const char* summary;     // one line, for the list of commands
  const char* details;     // further help text, or ""
  std::span<const Option> options;
};

// Parsed arguments. A wrong one fails with Code::usage, which main() turns into exit code 2 and a pointer to --help.
class Args {
 public:
  // `--` ends the options; a lone `-` is a positional argument. Negative numbers are values, not options.
  Args(const CommandInfo& command, std::span<char* const> argv);
  bool wants_help() const { return help_; }
  bool flag(std::string_view name) const { return bool(text(name)); }
  std::optional<std::string_view> text(std::string_view name) const;                    // the last one given
  std::vector<std::string_view> all(std::string_view name) const;                        // every one given
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high) const;
  std::optional<double> number(std::string_view name, double low, double high) const;
  // The value must be one of the words.
  std::optional<std::string_view> word(std::string_view name, std::span<const std::string_view> words) const;
  const std::vector<std::string_view>& positional() const { return positional_; }

 private:
  const CommandInfo& command_;
  std::vector<std::pair<std::string_view, std::string_view>> given_;
  std::vector<std::string_view> positional_;
  bool help_ = false;
};

std::string help_text(const CommandInfo& command);

}  // namespace tealight::cli
