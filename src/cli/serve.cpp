// serve: OpenAI's API over HTTP.
#include <sys/resource.h>

#include <cstdlib>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/mapping.h"
#include "src/cli/commands.h"
#include "src/cli/model_options.h"
#include "src/host/api_service.h"
#include "src/host/detect.h"
#include "src/host/listener.h"

namespace tealight::cli {
namespace {

constexpr Option kOwnOptions[] = {
    {"host", "", "ADDRESS", "numeric address to listen on (default 127.0.0.1; 0.0.0.0 when PORT is set)"},
    {"port", "", "N", "port (default 8080 or $PORT; 0: any free one, which is printed)"},
    {"unix", "", "PATH", "listen on a UNIX socket instead"},
    {"parallel", "", "N", "generations evaluated together (default 4)"},
    {"queue", "", "N", "further ones that wait; beyond them requests get 503 (default 64)"},
    {"alias", "", "NAME", "another name of the model; \"*\": take requests for any"},
    {"api-key-file", "", "FILE", "keys that clients must send, one a line (or one in TEALIGHT_API_KEY)"},
    {"cors", "", "ORIGIN", "let browsers call from this origin; \"*\": from everywhere"},
    {"max-body", "", "BYTES", "longest request (default 16777216)"},
    {"max-connections", "", "N", "open connections (default 1024)"},
    {"timeout", "", "SECONDS", "a generation ends then with what it has (default: none)"},
    {"grace", "", "SECONDS", "time for what runs after SIGTERM (default 10)"},
    {"access-log", "", "off|text|json", "a line for each request on standard error (default text); json: all lines are JSON"},
};
constexpr auto kOptions = join(kOwnOptions, kModelOptions, kDraftOptions, kSandboxOptions);
constexpr CommandInfo kInfo = {
    "serve", "MODEL", "answer OpenAI's API over HTTP",
    "POST /v1/chat/completions, /v1/completions; GET /v1/models, /health, /ready, /metrics. Sockets that systemd\n"
    "passes are used instead of --port. SIGTERM ends it: what runs is finished.",
    kOptions};

std::vector<std::string> api_keys(const Args& args) {
  std::vector<std::string> keys;
  const auto file = args.text("api-key-file");
  const char* variable = std::getenv("TEALIGHT_API_KEY");
  std::string text = file ? read_text_file(std::string(*file), 1 << 20) : variable ? variable : "";
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (!line.empty()) keys.emplace_back(line);
    begin = end + 1;
  }
  if (file && keys.empty()) fail(Code::usage, "--api-key-file: ", *file, " holds no key");
  return keys;
}

HttpServerOptions server_options(const Args& args) {
  static constexpr std::string_view logs[] = {"off", "text", "json"};
  HttpServerOptions o;
  o.limits.body_bytes = size_t(args.integer("max-body", 1, int64_t(1) << 32).value_or(int64_t(o.limits.body_bytes)));
  o.max_connections = size_t(args.integer("max-connections", 1, 1 << 20).value_or(int64_t(o.max_connections)));
  o.grace_us = int64_t(args.number("grace", 0, 1e6).value_or(10) * 1e6);
  if (const auto origin = args.text("cors")) o.cors = *origin;
  if (const auto log = args.word("access-log", logs))
    o.access_log = *log == "off" ? HttpServerOptions::AccessLog::off : *log == "json" ? HttpServerOptions::AccessLog::json : HttpServerOptions::AccessLog::text;
  if (o.access_log == HttpServerOptions::AccessLog::json) log_setup(true, LogLevel::info);
  o.api_keys = api_keys(args);
  return o;
}

// As many descriptors as connections can need.
void allow_descriptors(size_t connections) {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= connections + 64) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, connections + 64);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Says where it listens: people and scripts read the line.
void listen_for(const Args& args, const DetectedHost& host, HttpServer& server) {
  const auto unix_path = args.text("unix"), address = args.text("host");
  const auto port = args.integer("port", 0, 65535);
  const bool chosen = unix_path || address || port;
  if (!chosen) {
    const std::vector<int> inherited = inherited_sockets();
    for (int fd : inherited) server.add(fd);
    if (!inherited.empty()) return log_line(LogLevel::info, cat("listening on ", inherited.size(), " sockets that were passed"));
  }
  if (unix_path || (!chosen && !host.unix_path.empty())) {
    const std::string path = unix_path ? std::string(*unix_path) : host.unix_path;
    server.add(listen_unix(path, host.fn ? 0666 : 0600));
    return log_line(LogLevel::info, cat("listening on ", path));
  }
  int number = port ? int(*port) : host.port >= 0 ? host.port : 8080;
  const std::string name = address ? std::string(*address) : !host.address.empty() ? host.address : "127.0.0.1";
  server.add(listen_tcp(name, number));
  log_line(LogLevel::info, cat("listening on http://", name.find(':') != name.npos ? cat('[', name, ']') : name, ':', number));
}

int run(const Args& args) {
  size_t next = 0;
  const std::string path = model_path(args, kInfo, next);
  if (next < args.positional().size()) fail(Code::usage, "serve: unexpected argument ", quoted(args.positional()[next]));
  const DetectedHost host = detect_host();
  ApiOptions options;
  options.scheduler.parallel = int(args.integer("parallel", 1, 1024).value_or(options.scheduler.parallel));
  options.scheduler.queue = int(args.integer("queue", 0, 1 << 20).value_or(options.scheduler.queue));
  options.timeout_us = int64_t(args.number("timeout", 0, 1e6).value_or(0) * 1e6);
  options.aliases = {path, path.substr(path.find_last_of('/') + 1)};
  if (const auto alias = args.text("alias")) options.aliases.emplace_back(*alias);
  options.sandbox = sandbox_mode(args.text("sandbox"));
  options.any_path = host.any_path;
  options.fn = host.fn;
  const HttpServerOptions server_opts = server_options(args);
  const LoadOptions load = load_options(args);
  allow_descriptors(server_opts.max_connections);

  ApiService service(options, [&] { return Lm::load(path, load); });
  HttpServer server(service, server_opts);
  listen_for(args, host, server);
  service.start(server);
  return server.run();
}

}  // namespace

const Command serve_command = {kInfo, run};

}  // namespace tealight::cli
