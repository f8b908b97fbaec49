#include "src/base/log.h"

#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "src/base/json.h"

namespace tealight {
namespace {

bool g_json = false;
LogLevel g_least = LogLevel::trace;
thread_local std::string_view t_request;

// RFC 3339 in UTC with milliseconds.
std::string timestamp() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm t{};
  ::gmtime_r(&now.tv_sec, &t);
  char text[64];
  const int n = std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday,
                              t.tm_hour, t.tm_min, t.tm_sec, int(now.tv_nsec / 1000000));
  return std::string(text, size_t(n));
}

}  // namespace

void log_setup(bool json, LogLevel least) {
  g_json = json;
  g_least = least;
}

bool log_is_json() { return g_json; }

void log_request(std::string_view id) { t_request = id; }

void log_line(LogLevel level, std::string_view message) {
  if (level < g_least) return;
  std::string s;
  if (g_json) {
    static constexpr const char* names[] = {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"};
    JsonWriter w(s);
    w.begin_object().field("timestamp", timestamp()).field("level", names[int(level)]).field("message", message);
    if (!t_request.empty()) w.field("requestId", t_request);
    w.end_object();
    s += '\n';
  } else {
    s = cat("tealight: ", message, "\n");
  }
  for (size_t done = 0; done < s.size();) {
    ssize_t n = ::write(2, s.data() + done, s.size() - done);
    if (n <= 0) return;
    done += size_t(n);
  }
}

}  // namespace tealight
