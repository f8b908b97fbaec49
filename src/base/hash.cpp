#include "src/base/hash.h"

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

namespace tealight {

struct Hasher::State {
  XXH3_state_t s;
};

uint64_t hash64(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string hex64(uint64_t v) {
  std::string s(16, '0');
  for (int i = 15; i >= 0; i--, v >>= 4) s[size_t(i)] = "0123456789abcdef"[v & 15];
  return s;
}

Hasher::Hasher() : state_(new State) { XXH3_64bits_reset(&state_->s); }
Hasher::~Hasher() = default;
void Hasher::update(const void* data, size_t bytes) { XXH3_64bits_update(&state_->s, data, bytes); }
uint64_t Hasher::digest() const { return XXH3_64bits_digest(&state_->s); }

}  // namespace tealight
