// Packing in tests: a stand-in for the runtime, a temporary folder, and a way to alter a packed file so that its checksums hold again.
#pragma once
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <string>

#include <unistd.h>

#include "src/base/error.h"
#include "src/base/hash.h"
#include "src/io/output_file.h"
#include "src/pack/writer.h"

namespace tealight {

// The head of an executable of 4096 bytes that no machine would run.
inline std::string fake_runtime(uint16_t machine = 62) {
  std::string bytes(4096, '\x5a');
  Elf64_Ehdr h{};
  std::memcpy(h.e_ident, ELFMAG, SELFMAG);
  h.e_ident[EI_CLASS] = ELFCLASS64;
  h.e_ident[EI_DATA] = ELFDATA2LSB;
  h.e_type = ET_EXEC;
  h.e_machine = machine;
  h.e_phoff = sizeof h;
  h.e_phnum = 1;
  h.e_phentsize = sizeof(Elf64_Phdr);
  Elf64_Phdr p{};
  p.p_filesz = bytes.size();
  std::memcpy(bytes.data(), &h, sizeof h);
  std::memcpy(bytes.data() + sizeof h, &p, sizeof p);
  return bytes;
}

struct TemporaryFolder {
  std::string path;
  TemporaryFolder() {
    char name[] = "/tmp/tealight-pack-XXXXXX";
    TEALIGHT_CHECK(mkdtemp(name));
    path = name;
  }
  ~TemporaryFolder() {
    const std::string command = "rm -rf " + path;
    if (std::system(command.c_str()) != 0) std::perror(path.c_str());
  }
  std::string file(std::string_view name) const { return path + "/" + std::string(name); }
  std::string write(std::string_view name, std::string_view bytes) const {
    OutputFile f(file(name));
    f.write(bytes.data(), bytes.size());
    f.finish();
    return file(name);
  }
};

// Packs a model behind the stand-in and returns the path.
inline std::string packed(const TemporaryFolder& folder, const std::string& model, PackOptions o = {}) {
  if (o.runtime.empty()) o.runtime = folder.write("runtime", fake_runtime());
  if (o.output.empty()) o.output = folder.file("packed");
  o.model = model;
  write_pack(o);
  return o.output;
}

// Makes the checksums of the table, its sections and the footer right again, where they lie in the file.
inline void reseal(std::string& file) {
  pack::Footer f;
  if (file.size() < sizeof f) return;
  char* end = file.data() + file.size() - sizeof f;
  std::memcpy(&f, end, sizeof f);
  std::memcpy(f.magic, pack::kMagic, sizeof f.magic);
  f.version = pack::kVersion;
  f.file_bytes = file.size();
  const auto at = [&](uint64_t offset, uint64_t bytes) { return offset <= file.size() && bytes <= file.size() - offset; };
  if (const uint64_t bytes = uint64_t(f.n_sections) * sizeof(pack::Section); at(f.table_offset, bytes)) {
    for (uint32_t i = 0; i < f.n_sections; i++) {
      char* row = file.data() + f.table_offset + i * sizeof(pack::Section);
      pack::Section s;
      std::memcpy(&s, row, sizeof s);
      if (!at(s.offset, s.bytes)) continue;
      s.hash = hash64(std::string_view(file).substr(s.offset, s.bytes));
      std::memcpy(row, &s, sizeof s);
    }
    f.table_hash = hash64(std::string_view(file).substr(f.table_offset, bytes));
  }
  f.hash = hash64({reinterpret_cast<const char*>(&f), offsetof(pack::Footer, hash)});
  std::memcpy(end, &f, sizeof f);
}

}  // namespace tealight
