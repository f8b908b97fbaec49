// The pipe protocol: one JSON request a line in, JSON lines out (kProtocolHelp says it for people).
#pragma once
#include <csignal>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.h"
#include "src/base/fd.h"
#include "src/host/sandbox.h"
#include "src/task/generate.h"

namespace tealight {

extern const char kProtocolHelp[];

// Lines of a file descriptor with bounded memory. read(2) is called only when no whole line is there.
class LineReader {
 public:
  // wake_fd: a descriptor that becomes readable when waiting is to end; -1: none.
  LineReader(int fd, size_t max_bytes, int wake_fd = -1);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  enum class Status {
    line,         // without its line end; the last one may have had none
    too_long,     // a line of more than max_bytes was skipped to its end
    end,          // no more input, or it cannot be read
    interrupted,  // wake_fd is readable, or a signal came that does not restart calls; call again to go on
  };
  Status next(std::string_view& line);  // `line` is valid until the next call
  // Descriptors that came with the line over a UNIX socket (the client sends a line and its descriptors in one message). They are
  // closed by the next call.
  std::span<const int> files() const { return line_files_; }
  bool is_unix_socket() const { return domain_ == kUnix; }
  bool is_local() const { return domain_ == kUnix || domain_ < 0; }   // a UNIX socket, or no socket at all

 private:
  bool find_end(size_t& end);
  int fill();                           // 1: bytes came, 0: end of input, -1: interrupted
  ssize_t receive(char* to, size_t size);
  void take_files(size_t end);
  void close_files();
  static const int kUnix;
  int fd_, wake_fd_;
  size_t max_bytes_;
  std::string buffer_;
  size_t begin_ = 0, scanned_ = 0;      // the next line begins at begin_; no line end in [begin_, scanned_)
  bool skipping_ = false, end_ = false;
  int domain_ = -1;                     // of a socket
  struct File {
    size_t at;                          // in buffer_: the last byte that came with it
    int fd;
  };
  std::vector<File> files_;
  std::vector<int> line_files_;
};

// A signal as a readable descriptor, for LineReader: a flag alone would be missed when the signal comes just before
// read(2), or to another thread. One at a time; the signal has its default action again afterwards.
class SignalPipe {
 public:
  explicit SignalPipe(int signal);
  ~SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;
  int fd() const { return pipe_[0]; }
  void clear();                                // forgets that it came
  static volatile std::sig_atomic_t came;

 private:
  static int pipe_[2];
  int signal_;
};

// The final answer object, without a line end.
std::string answer_json(const GenerateRequest& request, const GenerateResult& result, Lm& lm);
// {"error":{"code":...,"message":...}}, with the id when there is one.
std::string error_json(const Error& error, const std::string& id);

// Answers request lines. `write` takes whole lines with their ends; false: nobody reads them any more.
class StdioHost {
 public:
  using Write = std::function<bool(std::string_view)>;
  StdioHost(Lm& lm, Write write) : lm_(lm), generator_(lm), write_(std::move(write)) {}
  // Writes the answer or one error line. Never throws for what a request holds. False: nobody reads.
  // files: descriptors that came with the line. `local`: the client may share memory.
  bool answer(std::string_view line, std::span<const int> files = {}, bool local = false);
  bool refuse(const Error& error, const std::string& id = {});

 private:
  void generate(const GenerateRequest& request);
  void answer_shared(Json request, std::span<const int> files);
  bool write_delta(std::string_view text);
  Lm& lm_;
  Generator generator_;
  Write write_;
  std::string delta_, delta_begin_;     // the line under way; what every delta line of a request begins with
  const char* delta_end_ = "";
  bool open_ = true;
};

// Serves until the end of input, until nobody reads, or until SIGTERM (which lets the line under way end). Handles SIGTERM
// meanwhile and ignores SIGPIPE from then on. One at a time. Enters the sandbox before it reads. Returns the exit code.
int serve_stdio(Lm& lm, int in, int out, SandboxMode sandbox = SandboxMode::off);

}  // namespace tealight
