// XXH3 hashes (xxHash), 64 bits.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tealight {

uint64_t hash64(std::string_view bytes);
std::string hex64(uint64_t v);

// The same hash over pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  void update(const void* data, size_t bytes);
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tealight
