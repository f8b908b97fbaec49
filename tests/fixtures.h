// Where the tests' data lies: copies of generated files in tests/data, the rest in a folder beside the repository.
#pragma once
#include <cstdlib>
#include <string>
#include <string_view>

#include <unistd.h>

// The path of a file or folder of the fixtures: tests/data/REL, or REL in $TEALIGHT_FIXTURES (by default
// ../shared/fixtures); "" where it is in neither.
inline std::string fixture(std::string_view relative) {
  const char* external = std::getenv("TEALIGHT_FIXTURES");
  for (const std::string& root : {std::string("tests/data"), std::string(external ? external : "../shared/fixtures")}) {
    std::string path = root + "/" + std::string(relative);
    if (::access(path.c_str(), R_OK) == 0) return path;
  }
  return "";
}

inline bool have_fixture(std::string_view relative) { return !fixture(relative).empty(); }
