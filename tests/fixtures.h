// Where test data lies: generated files in tests/data, larger ones in a folder beside the repository.
#pragma once
#include <cstdlib>
#include <string>
#include <string_view>
#include <unistd.h>

// The path of a fixture, "" when it is nowhere. Tests run in the source root.
inline std::string fixture(std::string_view relative) {
  const char* env = std::getenv("TEALIGHT_FIXTURES");
  for (std::string root : {std::string("tests/data"), std::string(env ? env : "../shared/fixtures")}) {
    const std::string path = root + "/" + std::string(relative);
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return "";
}
inline bool have_fixture(std::string_view relative) { return !fixture(relative).empty(); }
