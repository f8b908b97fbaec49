// main() of a person's function: which model, which host.
#include "include/tealight/function.h"

#include <cstdlib>
#include <exception>

#include "src/api/function_handler.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/host/cgi.h"
#include "src/host/detect.h"
#include "src/host/handler_service.h"
#include "src/host/lambda/lambda.h"
#include "src/host/lines.h"
#include "src/host/listener.h"
#include "src/host/stdio.h"
#include "src/pack/pack_file.h"

namespace tealight {
namespace {

constexpr char kHelp[] =
    "usage: PROGRAM [MODEL] [--threads N] [--ctx N] [--port N] [--sandbox off|on|require]\n\n"
    "A function around a model. MODEL (or TEALIGHT_MODEL, which wins on AWS Lambda) is a packed file, a .gguf, a .safetensors beside its\n"
    "config.json, or a Hugging Face directory; a program that `tealight pack MODEL --runtime PROGRAM -o FILE` has packed needs none.\n\n"
    "By its environment it is a function of AWS Lambda, a server over HTTP (PORT, --port, sockets of systemd, Azure, Fn, OpenFaaS), or one\n"
    "call of CGI; else it answers one request a line on standard input with a line on standard output.\n";

constexpr char kAgent[] = "tealight/" TEALIGHT_VERSION;
constexpr size_t kQueue = 64;          // calls over HTTP that wait

struct Arguments {
  std::string model;
  LoadOptions load;
  SandboxMode sandbox = SandboxMode::on;
  int port = -1;
  bool help = false;
};

int whole_number(std::string_view option, const char* text) {
  char* end = nullptr;
  const long v = std::strtol(text, &end, 10);
  if (end == text || *end || v < 0 || v > 1 << 30) fail(Code::usage, option, ": ", quoted(text), " is no whole number from 0 to ", 1 << 30);
  return int(v);
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  std::optional<std::string_view> sandbox;
  for (int i = 1; i < argc; i++) {
    const std::string_view word = argv[i];
    const auto value = [&]() -> const char* {
      if (i + 1 == argc) fail(Code::usage, word, " needs a value");
      return argv[++i];
    };
    if (word == "--help") a.help = true;
    else if (word == "--threads") a.load.threads = whole_number(word, value());
    else if (word == "--ctx") a.load.ctx = whole_number(word, value());
    else if (word == "--port") a.port = whole_number(word, value());
    else if (word == "--sandbox") sandbox = value();
    else if (word.starts_with("--")) fail(Code::usage, "unknown option ", word);
    else if (a.model.empty()) a.model = word;
    else fail(Code::usage, "unexpected argument ", quoted(word));
  }
  if (a.port > 65535) fail(Code::usage, "--port: ", a.port, " is no port");
  a.sandbox = sandbox_mode(sandbox);
  const char* variable = std::getenv("TEALIGHT_MODEL");
  if (variable && *variable && std::getenv("AWS_LAMBDA_RUNTIME_API")) a.model = variable;
  if (a.model.empty()) a.model = default_model();
  if (a.model.empty() && !a.help) fail(Code::usage, "no MODEL given; it is the first argument, or TEALIGHT_MODEL");
  return a;
}

// Loads, and locks down what the host leaves: its policy is that of everything but files.
std::unique_ptr<Handler> load(const Arguments& a, const Function& f, const SandboxPolicy& policy) {
  std::unique_ptr<Lm> lm = Lm::load(a.model, a.load);
  Lm& model = *lm;
  std::unique_ptr<Handler> handler = function_handler(std::move(lm), f);
  enter_sandbox(model, policy, a.sandbox);
  return handler;
}

int serve_lambda(const Arguments& a, const Function& f) {
  lambda::set_up_logs();
  const auto load = [&](bool) -> lambda::Loading {
    return {[&]() -> lambda::Loaded {
      std::unique_ptr<Lm> lm = Lm::load(a.model, a.load);
      Lm& model = *lm;
      return {function_handler(std::move(lm), f), &model};
    }};
  };
  return lambda::serve(load, {kAgent, a.sandbox});
}

int serve_http(const Arguments& a, const Function& f, const DetectedHost& host) {
  HandlerService service([&] { return load(a, f, {.accept = true}); }, kQueue);
  HttpServer server(service, {});
  int port = a.port >= 0 ? a.port : host.port;
  if (a.port < 0 && !host.unix_path.empty()) server.add(listen_unix(host.unix_path, host.fn ? 0666 : 0600));
  else if (port >= 0) server.add(listen_tcp(host.address.empty() ? "127.0.0.1" : host.address, port));
  else for (int fd : inherited_sockets()) server.add(fd);
  log_line(LogLevel::info, port >= 0 ? cat("listening on port ", port) : std::string("listening"));
  service.start(server);
  return server.run();
}

int serve(const Arguments& a, const Function& f) {
  DetectedHost host = detect_host();
  if (a.port >= 0) host.kind = HostKind::http;
  switch (host.kind) {
    case HostKind::lambda: return serve_lambda(a, f);
    case HostKind::http: return serve_http(a, f, host);
    case HostKind::cgi: return serve_cgi(*load(a, f, {}), 0, 1);
    case HostKind::pipe: return serve_pipe(*load(a, f, {}), 0, 1);
    case HostKind::none: break;
  }
  std::unique_ptr<Lm> lm = Lm::load(a.model, a.load);
  Lm& model = *lm;
  return serve_lines(*function_handler(std::move(lm), f), 0, 1, a.sandbox, [&] { model.warm_threads(); });
}

}  // namespace

int function(int argc, char** argv, const Function& f) {
  try {
    const Arguments a = parse(argc, argv);
    if (a.help) return write_all(1, kHelp) ? 0 : 1;
    return serve(a, f);
  } catch (const Error& e) {
    log_line(e.message);
    return e.code == Code::usage ? 2 : 1;
  } catch (const std::exception& e) {
    log_line(e.what());
    return 1;
  }
}

}  // namespace tealight
