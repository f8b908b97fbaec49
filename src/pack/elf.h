// The head of an executable.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tealight::pack {

struct Elf {
  uint16_t machine = 0;                // 62: x86-64, 183: aarch64
  uint64_t end = 0;                    // of what its head, segments and sections name
  std::string_view machine_name() const { return machine == 62 ? "x86-64" : machine == 183 ? "aarch64" : "another machine"; }
};

// A little-endian 64-bit executable whose parts all lie in `bytes`; nothing for anything else.
std::optional<Elf> read_elf(std::span<const std::byte> bytes);

}  // namespace tealight::pack
