// Lines for people and operators on standard error. Results go to standard output, never through here.
#pragma once
#include <string_view>

#include "src/base/error.h"

namespace tealight {

// Writes "tealight: MESSAGE\n" in one write.
void log_line(std::string_view message);
template <class... A>
void warn(const A&... a) {
  log_line(cat("warning: ", a...));
}

}  // namespace tealight
