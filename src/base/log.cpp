#include "src/base/log.h"

#include <unistd.h>

namespace tealight {

void log_line(std::string_view message) {
  std::string s = cat("tealight: ", message, "\n");
  for (size_t done = 0; done < s.size();) {
    ssize_t n = ::write(2, s.data() + done, s.size() - done);
    if (n <= 0) return;
    done += size_t(n);
  }
}

}  // namespace tealight
