#include "src/pack/elf.h"

#include <algorithm>
#include <cstring>
#include <elf.h>

#include "src/base/checked.h"

namespace tealight::pack {
namespace {

// Calls f(row) for each row of a table; false when it does not lie in `bytes`.
template <class Row, class F>
bool each_row(std::span<const std::byte> bytes, uint64_t offset, uint64_t n, uint64_t stride, F f) {
  if (n == 0) return true;
  if (stride < sizeof(Row) || !inside(offset, n * stride, bytes.size())) return false;   // 16-bit factors
  for (uint64_t i = 0; i < n; i++) {
    Row row;
    std::memcpy(&row, bytes.data() + offset + i * stride, sizeof row);
    if (!f(row)) return false;
  }
  return true;
}

}  // namespace

std::optional<Elf> read_elf(std::span<const std::byte> bytes) {
  Elf64_Ehdr h;
  if (bytes.size() < sizeof h) return std::nullopt;
  std::memcpy(&h, bytes.data(), sizeof h);
  if (std::memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB) return std::nullopt;
  if (h.e_type != ET_EXEC && h.e_type != ET_DYN) return std::nullopt;
  Elf elf{h.e_machine, sizeof h};
  const auto take = [&](uint64_t offset, uint64_t n) {
    if (!inside(offset, n, bytes.size())) return false;
    elf.end = std::max(elf.end, offset + n);
    return true;
  };
  const bool whole = h.e_phnum > 0 && take(h.e_phoff, uint64_t(h.e_phnum) * h.e_phentsize) && take(h.e_shoff, uint64_t(h.e_shnum) * h.e_shentsize) &&
                     each_row<Elf64_Phdr>(bytes, h.e_phoff, h.e_phnum, h.e_phentsize, [&](const Elf64_Phdr& p) { return take(p.p_offset, p.p_filesz); }) &&
                     each_row<Elf64_Shdr>(bytes, h.e_shoff, h.e_shnum, h.e_shentsize,
                                          [&](const Elf64_Shdr& s) { return s.sh_type == SHT_NOBITS || take(s.sh_offset, s.sh_size); });
  return whole ? std::optional(elf) : std::nullopt;
}

}  // namespace tealight::pack
