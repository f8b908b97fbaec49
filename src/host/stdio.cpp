#include "src/host/stdio.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/host/openai.h"
#include "src/host/shared_memory.h"

namespace tealight {

const char kProtocolHelp[] =
    "One JSON object a line in, JSON lines out. A request has the fields of OpenAI's chat completions:\n"
    "  messages            [{\"role\":\"user\",\"content\":\"...\"}, ...]: the model's chat template is applied; or\n"
    "  prompt              a text that the model continues\n"
    "  max_tokens          (or max_completion_tokens) default: until the model ends or the context is full\n"
    "  temperature         default 1; 0 is greedy       top_p 0..1      top_k 0 = all\n"
    "  min_p, typical_p    0..1                         seed            a whole number\n"
    "  repetition_penalty, frequency_penalty, presence_penalty\n"
    "  logit_bias          {\"token id\": -100..100}\n"
    "  stop                a string, or up to 16 strings\n"
    "  stream              true: delta lines, then the answer\n"
    "  logprobs, top_logprobs (0..20), min_tokens, ignore_eos, tools, chat_template_kwargs, n (only 1)\n"
    "  id                  a string or a number, given back with each line of the answer\n"
    "The answer is one line: id, object, model, choices[0].message.content (or .text for a prompt),\n"
    "choices[0].finish_reason (stop or length) and usage. With stream, lines with choices[0].delta.content\n"
    "(.text) come before it. A line that cannot be answered gets one line {\"error\":{\"code\":...,\"message\":...}}\n"
    "and the next line is read. Unknown fields are ignored with a warning on standard error. The end of input\n"
    "ends it with exit code 0; SIGTERM does so after the line under way.";

const int LineReader::kUnix = AF_UNIX;

LineReader::LineReader(int fd, size_t max_bytes, int wake_fd) : fd_(fd), wake_fd_(wake_fd), max_bytes_(max_bytes) {
  socklen_t size = sizeof domain_;
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain_, &size) != 0) domain_ = -1;
}

LineReader::~LineReader() {
  take_files(SIZE_MAX);
  close_files();
}

void LineReader::close_files() {
  for (int fd : line_files_) ::close(fd);
  line_files_.clear();
}

// The descriptors up to this place of the buffer go with the line that is given out.
void LineReader::take_files(size_t end) {
  std::erase_if(files_, [&](const File& f) {
    if (f.at <= end) line_files_.push_back(f.fd);
    return f.at <= end;
  });
}

// Reads from a UNIX socket. The kernel ends a read after the first message that brings descriptors, so they belong to the line
// of the last byte.
ssize_t LineReader::receive(char* to, size_t size) {
  constexpr size_t kMaxFiles = 16;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFiles)];
  iovec bytes = {to, size};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  const cmsghdr* c = CMSG_FIRSTHDR(&message);   // no option asks for another one
  if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) return n;
  for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
    if (n > 0 && files_.size() < kMaxFiles) files_.push_back({size_t(to - buffer_.data()) + size_t(n) - 1, fd});
    else ::close(fd);
  }
  return n;
}

bool LineReader::find_end(size_t& end) {
  const size_t at = buffer_.find('\n', scanned_);
  scanned_ = at == buffer_.npos ? buffer_.size() : at + 1;
  end = at;
  return at != buffer_.npos;
}

int LineReader::fill() {
  if (wake_fd_ >= 0) {
    pollfd fds[] = {{fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    const int n = ::poll(fds, 2, -1);
    if (n < 0 || fds[1].revents) return -1;
  }
  constexpr size_t kChunk = 64 << 10;
  const size_t size = buffer_.size();
  buffer_.resize(size + kChunk);
  const ssize_t n = domain_ == kUnix ? receive(buffer_.data() + size, kChunk) : ::read(fd_, buffer_.data() + size, kChunk);
  buffer_.resize(size + (n > 0 ? size_t(n) : 0));
  if (n < 0 && errno == EINTR) return -1;
  return n > 0;
}

LineReader::Status LineReader::next(std::string_view& line) {
  buffer_.erase(0, begin_);
  scanned_ -= begin_;
  for (File& f : files_) f.at -= begin_;
  begin_ = 0;
  close_files();
  if (buffer_.empty() && buffer_.capacity() > (1 << 20)) std::string().swap(buffer_);  // after a very long line
  while (true) {
    size_t end = 0;
    const bool found = find_end(end);
    if (found || (end_ && !buffer_.empty())) {
      begin_ = scanned_;
      take_files(begin_ - 1);
      line = std::string_view(buffer_).substr(0, found ? end : buffer_.size());
      const bool skipped = std::exchange(skipping_, false) || line.size() > max_bytes_;
      return skipped ? Status::too_long : Status::line;
    }
    if (end_) return std::exchange(skipping_, false) ? Status::too_long : Status::end;
    if (skipping_ || buffer_.size() > max_bytes_) {
      skipping_ = true;
      buffer_.clear();
      scanned_ = 0;
      for (File& f : files_) f.at = 0;
    }
    const int got = fill();
    if (got < 0) return Status::interrupted;
    end_ = got == 0;
  }
}

std::string answer_json(const GenerateRequest& request, const GenerateResult& result, Lm& lm) {
  std::string out;
  out.reserve(result.text.size() + 512);
  JsonWriter w(out);
  write_answer_head(w, {request.id, 0, std::string(lm.name())}, request.chat ? "chat.completion" : "text_completion");
  w.key("choices").begin_array().begin_object().field("index", 0);
  if (request.chat) w.key("message").begin_object().field("role", "assistant").field("content", result.text).end_object();
  else w.field("text", result.text);
  w.field("finish_reason", finish_name(result.finish));
  if (request.sampling.top_logprobs >= 0) write_logprobs(w, request, result, lm.tokenizer());
  w.end_object().end_array();
  write_usage(w, result);
  w.end_object();
  return out;
}

std::string error_json(const Error& error, const std::string& id) {
  std::string out;
  JsonWriter w(out);
  w.begin_object();
  if (!id.empty()) w.key("id").raw(id);
  w.key("error").begin_object().field("code", code_name(error.code)).field("message", error.message).end_object().end_object();
  return out;
}

bool StdioHost::refuse(const Error& error, const std::string& id) {
  open_ = open_ && write_(error_json(error, id) + "\n");
  return open_;
}

bool StdioHost::answer(std::string_view line, std::span<const int> files, bool local) {
  if (line.find_first_not_of(" \t\r") == line.npos) return open_;
  std::string id;
  try {
    JsonDoc doc;
    try {
      doc = JsonDoc::parse(line, "request");
    } catch (const Error& e) {
      fail(Error(e.code == Code::format ? Code::request : e.code, cat("expected one JSON object a line; ", e.message)));
    }
    id = request_id(doc.root());
    if (!lm_.default_fields().empty()) doc = with_defaults(lm_.default_fields(), doc.root());
    if (doc.root()["shm"]) {
      if (!local) fail(Code::request, "shm: memory is shared over pipes and UNIX sockets alone");
      answer_shared(doc.root(), files);
      return open_;
    }
    const GenerateRequest request = parse_request(doc.root());
    for (const std::string& name : request.unknown) warn("unknown field ", quoted(name), " is ignored");
    generate(request);
    return open_;
  } catch (const Error& e) {
    return refuse(e, id);
  } catch (const std::bad_alloc&) {
    return refuse(Error(Code::memory, "not enough memory for this request; make it shorter"), id);
  } catch (const std::length_error&) {
    return refuse(Error(Code::request, "the request is too large; make it shorter"), id);
  }
}

void StdioHost::generate(const GenerateRequest& request) {
  GenerateResult result;
  if (request.stream) {
    delta_begin_.clear();
    JsonWriter w(delta_begin_);
    write_answer_head(w, {request.id, 0, std::string(lm_.name())}, request.chat ? "chat.completion.chunk" : "text_completion");
    delta_begin_ += request.chat ? ",\"choices\":[{\"index\":0,\"delta\":{\"content\":" : ",\"choices\":[{\"index\":0,\"text\":";
    delta_end_ = request.chat ? "},\"finish_reason\":null}]}\n" : ",\"finish_reason\":null}]}\n";
    delta_.reserve(delta_begin_.size() + 4096);
    result = generator_.generate(request, [this](std::string_view text) { return write_delta(text); });
  } else {
    result = generator_.generate(request);
  }
  open_ = open_ && write_(answer_json(request, result, lm_) + "\n");
}

void StdioHost::answer_shared(Json request, std::span<const int> files) {
  SharedMemory memory(request["shm"], files);
  const JsonDoc doc = JsonDoc::parse(without_shared(request, memory), "request");
  const GenerateRequest q = parse_request(doc.root());
  const std::vector<TokenId> prompt = memory.has("tokens") ? memory.tokens("tokens") : encode_request(lm_, q);
  const std::string_view kind = memory.output_kind();
  std::string out;
  if (kind == "logits" || kind == "embedding") {
    write_values(memory, kind, lm_, prompt);
    JsonWriter w(out);
    write_answer_head(w, {q.id, 0, std::string(lm_.name())}, kind);
    w.key("usage").begin_object().field("prompt_tokens", uint64_t(prompt.size())).end_object();
    w.key("shm").raw(memory.output_json()).end_object();
  } else {
    if (q.stream) fail(Code::request, "stream: not together with shm");
    GenerateResult result = generator_.generate(q, prompt);
    if (kind == "text") {
      const std::span<std::byte> to = memory.output(result.text.size(), Dtype::u8, {int64_t(result.text.size())});
      std::memcpy(to.data(), result.text.data(), to.size());
      result.text.clear();
    }
    out = answer_json(q, result, lm_);
    if (!kind.empty()) out.replace(out.size() - 1, 1, cat(",\"shm\":", memory.output_json(), "}"));
  }
  open_ = open_ && write_(out + "\n");
}

bool StdioHost::write_delta(std::string_view text) {
  delta_ = delta_begin_;
  json_quote(delta_, text);
  delta_ += delta_end_;
  open_ = open_ && write_(delta_);
  return open_;
}

volatile std::sig_atomic_t SignalPipe::came = 0;
int SignalPipe::pipe_[2] = {-1, -1};

SignalPipe::SignalPipe(int signal) : signal_(signal) {
  if (::pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) != 0) fail(Code::file, "cannot make a pipe: ", std::strerror(errno));
  came = 0;
  struct sigaction action = {};
  action.sa_handler = [](int) {
    const int saved = errno;
    came = 1;
    [[maybe_unused]] const ssize_t n = ::write(pipe_[1], "", 1);
    errno = saved;
  };
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

SignalPipe::~SignalPipe() {
  ::signal(signal_, SIG_DFL);
  ::close(pipe_[0]);
  ::close(pipe_[1]);
}

void SignalPipe::clear() {
  char bytes[64];
  while (::read(pipe_[0], bytes, sizeof bytes) > 0) {
  }
  came = 0;
}

int serve_stdio(Lm& lm, int in, int out, SandboxMode sandbox) {
  const SignalPipe termination(SIGTERM);
  ::signal(SIGPIPE, SIG_IGN);

  StdioHost host(lm, [out](std::string_view line) { return write_all(out, line); });
  LineReader reader(in, RequestLimits::max_line_bytes, termination.fd());
  enter_sandbox(lm, {.receive_files = reader.is_unix_socket()}, sandbox);
  bool open = true;
  while (open && !SignalPipe::came) {
    std::string_view line;
    switch (reader.next(line)) {
      case LineReader::Status::line: open = host.answer(line, reader.files(), reader.is_local()); break;
      case LineReader::Status::too_long:
        open = host.refuse(Error(Code::request, cat("the line is longer than ", RequestLimits::max_line_bytes, " bytes; shorten the request")));
        break;
      case LineReader::Status::end: return 0;
      case LineReader::Status::interrupted: break;
    }
  }
  return 0;
}

}  // namespace tealight
