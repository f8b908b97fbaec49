// safetensors (github.com/huggingface/safetensors): one file, or shards named by model.safetensors.index.json.
#pragma once
#include <string>
#include <vector>

#include "src/io/output_file.h"
#include "src/io/weights.h"

namespace tealight {

struct Safetensors {
  WeightSet weights;
  std::vector<std::pair<std::string, std::string>> metadata;   // "__metadata__" of the first file

  // One file. Errors: Code::file, Code::format with the tensor and offset.
  static Safetensors open(const std::string& path);
  static Safetensors parse(std::shared_ptr<const Mapping> file);
  // All shards of DIR/model.safetensors.index.json. Shard names must be plain file names inside DIR.
  static Safetensors open_index(const std::string& index_path);
};

// Streams tensors into a safetensors file: all names, types and shapes are declared first, then the bytes in that order.
// Writes to PATH.tmp and renames on finish(); without finish() nothing is left behind.
class SafetensorsWriter {
 public:
  struct Declared {
    std::string name;
    Dtype dtype;
    std::vector<uint64_t> shape;
  };
  SafetensorsWriter(const std::string& path, const std::vector<Declared>& tensors,
                    const std::vector<std::pair<std::string, std::string>>& metadata = {});
  void write(const void* data, size_t bytes);                  // Code::file when the disk refuses
  void finish();                                               // checks that all declared bytes were written

 private:
  OutputFile file_;
  uint64_t left_ = 0;
};

}  // namespace tealight
