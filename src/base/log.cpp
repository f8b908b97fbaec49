#include "src/base/log.h"

#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "src/base/json.h"

namespace tealight {
namespace {

bool g_json = false;
LogLevel g_least = LogLevel::trace;
thread_local std::string_view t_request;

// RFC 3339 in UTC with milliseconds. Not by gmtime_r, which may want to read a file of time zones.
// The date: Howard Hinnant, civil_from_days.
std::string timestamp() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t seconds = uint64_t(now.tv_sec), of_day = seconds % 86400;
  const uint64_t days = seconds / 86400 + 719468;                        // since 0000-03-01
  const uint64_t era = days / 146097, of_era = days % 146097;
  const uint64_t years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
  const uint64_t of_year = of_era - (365 * years + years / 4 - years / 100), march_month = (5 * of_year + 2) / 153;
  const uint64_t day = of_year - (153 * march_month + 2) / 5 + 1, month = march_month < 10 ? march_month + 3 : march_month - 9;
  const uint64_t year = years + era * 400 + (month <= 2);
  std::string out;
  const auto put = [&](uint64_t v, int digits, char after) {
    for (uint64_t unit = digits == 4 ? 1000 : digits == 3 ? 100 : 10; unit; unit /= 10) out += char('0' + v / unit % 10);
    out += after;
  };
  put(year, 4, '-');
  put(month, 2, '-');
  put(day, 2, 'T');
  put(of_day / 3600, 2, ':');
  put(of_day / 60 % 60, 2, ':');
  put(of_day % 60, 2, '.');
  put(uint64_t(now.tv_nsec) / 1000000, 3, 'Z');
  return out;
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
