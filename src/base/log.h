// Lines for people and operators on standard error. Results go to standard output, never through here.
#pragma once
#include <string_view>

#include "src/base/error.h"

namespace tealight {

enum class LogLevel { trace, debug, info, warn, error, fatal };

// json: each line is an object with timestamp, level, message and, inside a request, requestId. Lines below `least` are not
// written. At the start: text, everything. To be called before there are threads.
void log_setup(bool json, LogLevel least);
bool log_is_json();
// The request that this thread's lines belong to from here on; empty: none. The text must stay until the next call.
void log_request(std::string_view id);

// Writes one line in one write. As text: "tealight: MESSAGE".
void log_line(LogLevel level, std::string_view message);
inline void log_line(std::string_view message) { log_line(LogLevel::error, message); }
template <class... A>
void warn(const A&... a) {
  log_line(LogLevel::warn, cat("warning: ", a...));
}

}  // namespace tealight
