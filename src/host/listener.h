// Sockets that wait for connections: TCP, UNIX, and those that were opened for this process (systemd).
#pragma once
#include <string>
#include <vector>

namespace tealight {

// `host`: a numeric address of either kind, "localhost" or "*"; names are not resolved. port 0: any free one; `port` gets the
// number. Errors: Code::file.
int listen_tcp(const std::string& host, int& port);
// Replaces a socket that nobody listens on any more. It appears under its name when it can be connected to, with that mode.
int listen_unix(const std::string& path, unsigned mode = 0600);
// Systemd's socket activation: LISTEN_PID, LISTEN_FDS (sd_listen_fds(3)). Empty when there are none for this process.
std::vector<int> inherited_sockets();

}  // namespace tealight
