// Memory that a client shares with a request: inputs are read where they lie, results are written there. docs/shared-memory.md has
// the protocol.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/types.h"
#include "src/base/json.h"
#include "src/task/lm.h"

namespace tealight {

// A part of the memory as a request describes it.
struct SharedPart {
  Dtype dtype = Dtype::u8;
  std::vector<int64_t> shape;
  std::span<std::byte> bytes;          // aligned for the dtype
};

// The "shm" object of one request. The client may write while the memory is in use here, so whatever is checked and then used is
// copied first; tensors are only computed with.
class SharedMemory {
 public:
  // files: the descriptors that came with the request. Maps the memory whole. Errors: Code::request.
  SharedMemory(Json shm, std::span<const int> files);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // shm.FIELD or shm.tensors.FIELD. Errors: Code::request when it is not there or lies outside.
  SharedPart part(std::string_view field) const;
  SharedPart tensor(std::string_view name) const;
  bool has(std::string_view field) const { return bool(shm_[field]); }
  bool has_tensor(std::string_view name) const { return bool(shm_["tensors"][name]); }
  std::string text(std::string_view field) const;
  std::vector<TokenId> tokens(std::string_view field) const;

  // What shm.output asks for: "text", "logits" or "embedding"; empty without an output.
  std::string_view output_kind() const;
  // Room of so many bytes at the front of shm.output. Errors: Code::request when there is less, or the memory cannot be written.
  std::span<std::byte> output(size_t bytes, Dtype dtype, std::vector<int64_t> shape);
  // {"offset":...,"bytes":...,"dtype":...,"shape":[...]} of what output() handed out; empty when it was not called.
  std::string output_json() const;

 private:
  SharedPart read_part(Json part, const std::string& where) const;
  Json shm_;
  std::span<std::byte> memory_;
  bool writable_ = false;
  SharedPart output_;
  bool has_output_ = false;
};

// For the model's own function: the request without "shm", its prompt taken from there.
std::string without_shared(Json request, const SharedMemory& memory);
// Writes the logits after the prompt, or its embedding, into the output.
void write_values(SharedMemory& memory, std::string_view kind, Lm& lm, std::span<const TokenId> prompt);

}  // namespace tealight
