// A file that appears whole or not at all.
#pragma once
#include <cstddef>
#include <string>

namespace tealight {

// Writes to PATH.tmp and renames on finish(); without finish() nothing is left behind. Errors: Code::file with the path
// and the system's reason.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path, bool executable = false);   // mode 0755, else as the umask says
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write(const void* data, size_t bytes);
  void finish();

 private:
  std::string path_, tmp_;
  int fd_ = -1;
};

}  // namespace tealight
