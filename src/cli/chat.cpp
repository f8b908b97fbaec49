// chat: talk with a model through its own chat template.
#include <signal.h>
#include <unistd.h>

#include <vector>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/cli/model_options.h"
#include "src/host/stdio.h"

namespace tealight::cli {
namespace {

constexpr Option kOwnOptions[] = {
    {"system", "", "TEXT", "a system message before the conversation"},
    {"json", "", "", "with a MESSAGE: print the answer at its end as one JSON object"},
};
constexpr auto kOptions = join(kOwnOptions, kModelOptions, kDraftOptions, kSamplingOptions);
constexpr CommandInfo kInfo = {
    "chat", "MODEL [MESSAGE]", "talk with a model, or get one answer to a message",
    "Without MESSAGE each line of standard input is a message; Ctrl-C ends an answer, Ctrl-D (or the end of input)\n"
    "the chat. The model's own chat template is used; special tokens written in messages are plain text. When the\n"
    "context is full, the oldest turns are forgotten. Defaults: --max-tokens -1, --temperature 0.8, --top-k 40,\n"
    "--top-p 0.95, --min-p 0.05.",
    kOptions};

// The conversation: messages as JSON objects; a system message, if any, is the first.
class Conversation {
 public:
  Conversation(Lm& lm, GenerateRequest request, std::string_view system) : lm_(lm), generator_(lm), request_(std::move(request)) {
    request_.chat = true;
    if (!system.empty()) messages_.push_back(message_json("system", system));
    first_turn_ = messages_.size();
  }

  GenerateResult say(std::string_view message, const TextSink& sink) {
    messages_.push_back(message_json("user", message));
    std::vector<TokenId> prompt;
    while (true) {
      request_.messages.clear();
      for (const std::string& m : messages_) request_.messages += cat(request_.messages.empty() ? "[" : ",", m);
      request_.messages += "]";
      prompt = encode_request(lm_, request_);
      if (prompt.size() <= generator_.capacity() || messages_.size() < first_turn_ + 3) break;
      warn("the context is full: the oldest turn is forgotten");
      messages_.erase(messages_.begin() + ptrdiff_t(first_turn_), messages_.begin() + ptrdiff_t(first_turn_) + 2);
    }
    GenerateResult result = generator_.generate(request_, prompt, sink, {.cancelled = [] { return SignalPipe::came != 0; }});
    messages_.push_back(message_json("assistant", result.text));
    return result;
  }
  // After an error: the message that could not be answered.
  void take_back() { messages_.resize(messages_.size() - (messages_.size() - first_turn_) % 2); }
  const GenerateRequest& request() const { return request_; }

 private:
  Lm& lm_;
  Generator generator_;
  GenerateRequest request_;
  std::vector<std::string> messages_;
  size_t first_turn_;
};

int talk(Conversation& conversation) {
  SignalPipe interrupt(SIGINT);
  const bool terminal = ::isatty(0) && ::isatty(1);
  LineReader reader(0, RequestLimits::max_line_bytes, interrupt.fd());
  while (true) {
    interrupt.clear();
    if (terminal) write_all(1, "> ");
    std::string_view line;
    const LineReader::Status status = reader.next(line);
    if (status == LineReader::Status::interrupted) {
      write_all(1, "\n");
      continue;
    }
    if (status == LineReader::Status::end) break;
    if (status == LineReader::Status::too_long) {
      warn("the message is longer than ", RequestLimits::max_line_bytes, " bytes and was dropped");
      continue;
    }
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == line.npos) continue;
    try {
      bool open = true;
      conversation.say(line, [&](std::string_view text) { return open = write_all(1, text); });
      if (!open || !write_all(1, "\n")) return 1;
    } catch (const Error& e) {
      log_line(e.message);
      conversation.take_back();
    }
  }
  if (terminal) write_all(1, "\n");
  return 0;
}

int run(const Args& args) {
  GenerateRequest request = terminal_defaults();
  read_sampling_options(args, request);
  size_t next = 0;
  const std::string path = model_path(args, kInfo, next);
  const auto& words = args.positional();
  if (next + 1 < words.size()) fail(Code::usage, "chat: more than one MESSAGE given; a message of several words needs quotes");
  const bool json = args.flag("json");
  if (json && next == words.size()) fail(Code::usage, "chat: --json needs a MESSAGE");
  const std::unique_ptr<Lm> lm = Lm::load(path, load_options(args));
  Conversation conversation(*lm, std::move(request), args.text("system").value_or(""));
  if (next == words.size()) {
    lm->chat_template();  // a model without one says so at once
    return talk(conversation);
  }
  const GenerateResult result = conversation.say(words[next], [&](std::string_view text) { return json || write_all(1, text); });
  if (json) return write_all(1, answer_json(conversation.request(), result, *lm) + "\n") ? 0 : 1;
  return result.finish != Finish::cancelled && (result.text.ends_with('\n') || write_all(1, "\n")) ? 0 : 1;
}

}  // namespace

const Command chat_command = {kInfo, run};

}  // namespace tealight::cli
