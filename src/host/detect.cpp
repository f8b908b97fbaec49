#include "src/host/detect.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "src/base/error.h"

namespace tealight {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::string_view(value) : std::string_view();
}

int parse_port(const char* name, std::string_view text) {
  int port = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < 0 || port > 65535)
    fail(Code::usage, name, ": ", quoted(text), " is no port");
  return port;
}

// "http://127.0.0.1:5000/", "127.0.0.1:5000".
void read_address(const char* name, std::string_view text, DetectedHost& host) {
  if (const size_t scheme = text.find("://"); scheme != text.npos) text.remove_prefix(scheme + 3);
  text = text.substr(0, text.find('/'));
  const size_t colon = text.rfind(':');
  if (colon == text.npos) fail(Code::usage, name, ": ", quoted(text), " has no port");
  host.address = text.substr(0, colon);
  host.port = parse_port(name, text.substr(colon + 1));
}

}  // namespace

DetectedHost detect_host() {
  DetectedHost host;
  host.kind = HostKind::http;
  if (!variable("AWS_LWA_PORT").empty()) {               // the Lambda web adapter talks to the Runtime API itself
    host.address = "127.0.0.1";
    host.port = parse_port("AWS_LWA_PORT", variable("AWS_LWA_PORT"));
  } else if (!variable("AWS_LAMBDA_RUNTIME_API").empty()) {
    host.kind = HostKind::lambda;
  } else if (std::string_view fn = variable("FN_LISTENER"); !fn.empty()) {
    if (!fn.starts_with("unix:/")) fail(Code::usage, "FN_LISTENER: expected unix:/PATH, got ", quoted(fn));
    host.unix_path = fn.substr(5);
    host.fn = host.any_path = true;
  } else if (std::string_view azure = variable("FUNCTIONS_CUSTOMHANDLER_PORT"); !azure.empty()) {
    host.address = "127.0.0.1";
    host.port = parse_port("FUNCTIONS_CUSTOMHANDLER_PORT", azure);
    host.any_path = true;
  } else if (!variable("LISTEN_FDS").empty() && variable("LISTEN_PID") == cat(::getpid())) {
    // sockets are there already
  } else if (std::string_view lambda_http = variable("AWS_LAMBDA_HTTP_ENDPOINT"); !lambda_http.empty()) {
    read_address("AWS_LAMBDA_HTTP_ENDPOINT", lambda_http, host);
  } else if (!variable("GATEWAY_INTERFACE").empty()) {   // before PORT: a web server may pass its own on
    host.kind = HostKind::cgi;
  } else if (std::string_view upstream = variable("upstream_url"); !upstream.empty() && variable("mode") == "http") {
    read_address("upstream_url", upstream, host);        // OpenFaaS' of-watchdog
  } else if (!variable("Http_Method").empty()) {         // OpenFaaS' classic watchdog: one process a request
    host.kind = HostKind::pipe;
  } else if (std::string_view port = variable("PORT"); !port.empty()) {
    host.address = "0.0.0.0";
    host.port = parse_port("PORT", port);
  } else {
    host.kind = HostKind::none;
  }
  return host;
}

}  // namespace tealight
