// Runs a fuzz target over files and folders of files, once each: the corpus as an ordinary test, without libFuzzer.
#include <dirent.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/mapping.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  DIR* dir = opendir(folder.c_str());
  TEALIGHT_CHECK(dir);
  while (const dirent* entry = readdir(dir))
    if (entry->d_name[0] != '.') files.push_back(folder + "/" + entry->d_name);
  closedir(dir);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    const std::vector<std::string> files = files_in(argv[i]);
    for (const std::string& file : files) {
      std::puts(file.c_str());
      std::fflush(stdout);   // the last line names the input of a crash
      const std::shared_ptr<const tealight::Mapping> input = tealight::Mapping::open(file);
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input->data()), input->size());
    }
    TEALIGHT_CHECK(!files.empty());
  }
}
