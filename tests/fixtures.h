// Where tests find their data: tests/data, else the folder of external fixtures beside the repository.
#pragma once
#include <cstdlib>
#include <string>
#include <string_view>

#include "src/base/mapping.h"

// The path of a fixture, "" when it is in neither place.
inline std::string fixture(std::string_view relative) {
  const char* folder = std::getenv("TEALIGHT_FIXTURES");
  for (std::string path : {"tests/data/" + std::string(relative), std::string(folder ? folder : "../shared/fixtures") + "/" + std::string(relative)})
    if (tealight::file_exists(path) || tealight::is_directory(path)) return path;
  return "";
}
inline bool have_fixture(std::string_view relative) { return !fixture(relative).empty(); }
