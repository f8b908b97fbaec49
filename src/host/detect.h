// Which host started this process, by what it put into the environment (docs of each host; the first match counts).
#pragma once
#include <string>

namespace tealight {

enum class HostKind { none, lambda, http, cgi, pipe };

struct DetectedHost {
  HostKind kind = HostKind::none;
  // Of an HTTP host:
  std::string address;                  // to listen on; empty: the default, or inherited sockets
  int port = -1;                        // -1: not TCP
  std::string unix_path;
  bool any_path = false;                // the host chooses the paths of requests
  bool fn = false;                      // Fn's contract
};

// Errors: Code::usage when a variable that decides has a wrong value.
DetectedHost detect_host();

}  // namespace tealight
