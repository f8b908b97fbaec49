// tokenize: text to ids and pieces, and back.
#include <charconv>
#include <memory>
#include <string>

#include <unistd.h>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/mapping.h"
#include "src/cli/commands.h"
#include "src/cli/model_options.h"
#include "src/io/gguf.h"
#include "src/pack/pack_file.h"
#include "src/text/tokenizer.h"

namespace tealight::cli {
namespace {

constexpr size_t kMaxConfigBytes = size_t(64) << 20;

constexpr Option kOptions[] = {{"decode", "", "", "the other way: token ids, parted by spaces, commas or line ends, to text"},
                               {"special", "", "", "recognize special tokens in the text; with --decode, show them"},
                               {"no-bos", "", "", "add no BOS, EOS or other framing"},
                               {"json-lines", "", "", "one JSON string a line in, one JSON array of ids a line out (with --decode: the reverse)"},
                               {"json", "", "", "print one JSON object: ids, pieces, text"}};
constexpr CommandInfo kInfo{"tokenize", "FILE [TEXT]", "text to token ids and pieces, or back",
                            "FILE is a .gguf, a packed file, a Hugging Face directory or a tokenizer.json. Without TEXT, or with -, the text is read from standard input.",
                            kOptions};

std::shared_ptr<const Tokenizer> from_pack(const PackFile& file) {
  file.check_tokenizer();
  if (file.gguf()) return Tokenizer::from_gguf(file.gguf(), &file.tables());
  if (!file.hf()->tokenizer_json) fail(Code::tokenizer, file.path(), ": it has no tokenizer");
  std::string config;
  if (const Json j = file.hf()->tokenizer_config.root()) JsonWriter(config).value(j);
  return Tokenizer::from_json(file.hf()->tokenizer_json->text(), config, file.hf()->tokenizer_json_path);
}

std::shared_ptr<const Tokenizer> load(const std::string& path) {
  if (const auto file = PackFile::open(path)) return from_pack(*file);
  if (path.ends_with(".gguf")) return Tokenizer::from_gguf(std::make_shared<Gguf>(Gguf::open(path)));
  const bool folder = is_directory(path);
  const std::string json = folder ? path + "/tokenizer.json" : path;
  const std::string config = json.substr(0, json.rfind('/') == json.npos ? 0 : json.rfind('/') + 1) + "tokenizer_config.json";
  const auto file = Mapping::open(json);
  if (file->text().starts_with("GGUF")) return Tokenizer::from_gguf(std::make_shared<Gguf>(Gguf::parse(file)));
  return Tokenizer::from_json(file->text(), file_exists(config) ? read_text_file(config, kMaxConfigBytes) : "", json);
}

std::string read_input() {
  std::string s;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0) fail(Code::file, "standard input: cannot be read");
    if (n == 0) return s;
    s.append(buffer, size_t(n));
  }
}

void write_output(std::string_view s) {
  while (!s.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, s.data(), s.size());
    if (n < 0) fail(Code::file, "standard output: cannot be written");
    s.remove_prefix(size_t(n));
  }
}

TokenId checked(const Tokenizer& t, int64_t id) {
  if (id < 0 || uint64_t(id) >= t.size()) fail(Code::request, "token id ", id, " is not in the vocabulary of ", t.size());
  return TokenId(id);
}

std::vector<TokenId> parse_ids(const Tokenizer& t, std::string_view s) {
  std::vector<TokenId> ids;
  while (true) {
    const size_t begin = s.find_first_not_of(" ,\t\r\n[]");
    if (begin == s.npos) return ids;
    s.remove_prefix(begin);
    int64_t v = 0;
    const auto [p, e] = std::from_chars(s.data(), s.data() + s.size(), v);
    if (e != std::errc() || p == s.data()) fail(Code::request, "not a token id: ", quoted(s, 20));
    ids.push_back(checked(t, v));
    s.remove_prefix(size_t(p - s.data()));
  }
}

std::string ids_json(const std::vector<TokenId>& ids) {
  std::string s;
  JsonWriter w(s);
  w.begin_array();
  for (TokenId id : ids) w.value(id);
  w.end_array();
  return s;
}

void print_json(const Tokenizer& t, std::string_view text, const std::vector<TokenId>& ids) {
  std::string s;
  JsonWriter w(s);
  w.begin_object().field("text", text).key("ids").raw(ids_json(ids)).key("pieces").begin_array();
  for (TokenId id : ids) w.value(t.piece(id));
  w.end_array().field("count", uint64_t(ids.size())).end_object();
  write_output(s += '\n');
}

void json_lines(const Tokenizer& t, std::string_view input, bool decode, bool special, Tokenizer::Options o) {
  for (size_t line = 1; !input.empty(); line++) {
    const size_t end = input.find('\n');
    const std::string_view text = input.substr(0, end);
    input.remove_prefix(end == input.npos ? input.size() : end + 1);
    if (text.find_first_not_of(" \t\r") == text.npos) continue;
    const std::string what = cat("line ", line);
    const JsonDoc doc = JsonDoc::parse(text, what);
    std::string out;
    if (decode) {
      if (!doc.root().is_array()) fail(Code::request, what, ": expected an array of token ids");
      std::vector<TokenId> ids;
      for (Json e : doc.root().elements()) ids.push_back(checked(t, e.integer(what)));
      json_quote(out, t.decode(ids, !special));
    } else {
      out = ids_json(t.encode(doc.root().string(what), o));
    }
    write_output(out += '\n');
  }
}

int run(const Args& args) {
  const auto& given = args.positional();
  size_t next = 0;
  const auto t = load(model_path(args, kInfo, next));
  if (given.size() > next + 1) fail(Code::usage, "tokenize: expected FILE [TEXT]");
  const bool decode = args.flag("decode"), special = args.flag("special");
  const Tokenizer::Options o{!args.flag("no-bos"), special};
  const bool from_stdin = next == given.size() || given[next] == "-";
  const std::string input = from_stdin ? read_input() : std::string(given[next]);
  if (args.flag("json-lines")) {
    json_lines(*t, input, decode, special, o);
    return 0;
  }
  const std::vector<TokenId> ids = decode ? parse_ids(*t, input) : t->encode(input, o);
  const std::string text = decode ? t->decode(ids, !special) : input;
  if (args.flag("json")) {
    print_json(*t, text, ids);
    return 0;
  }
  std::string out;
  if (decode) {
    out = text + "\n";
  } else {
    for (TokenId id : ids) {
      std::string line = std::to_string(id);
      line.resize(std::max<size_t>(line.size(), 7), ' ');
      out += line;
      json_quote(out, t->piece(id));
      out += '\n';
    }
  }
  write_output(out);
  return 0;
}

}  // namespace

const Command tokenize_command{kInfo, run};

}  // namespace tealight::cli
