#include "src/pack/describe.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/hash.h"
#include "src/base/json.h"
#include "src/pack/elf.h"

namespace tealight {
namespace {

std::string_view source_name(const PackFile& f) { return f.gguf() ? "gguf" : "huggingface"; }

std::string_view machine_of(const PackFile& f) {
  const auto elf = pack::read_elf(f.section("runtime"));
  return elf ? elf->machine_name() : "not an executable";
}

std::string column(std::string s, size_t width) {
  if (s.size() < width) s.resize(width, ' ');
  return s + "  ";
}

std::string describe_text(const PackFile& f) {
  const std::span<const WeightView> tensors = f.weights().all();
  const auto interleaved = std::count_if(tensors.begin(), tensors.end(), [](const auto& t) { return t.interleaved; });
  std::string s = cat("packed file, version ", pack::kVersion, ": runtime for ", machine_of(f), ", source ", source_name(f), ", cache ", name(f.kv()), "\n", tensors.size(), " tensors, ", interleaved, " of them in the x16 layout\n\nsections\n",
                      column("name", 12), column("offset", 12), column("bytes", 12), "hash\n");
  for (const pack::Section& row : f.sections())
    s += column(std::string(row.title()), 12) + column(cat(row.offset), 12) + column(cat(row.bytes), 12) + hex64(row.hash) + "\n";
  if (!f.defaults().empty()) s += cat("\ndefaults\n", f.defaults(), "\n");
  if (!f.prefixes().empty()) s += "\nprefixes\n";
  for (const PackFile::Prefix& p : f.prefixes()) s += cat(quoted(p.name), ": ", p.ids.size(), " tokens, ", p.kv.size(), " bytes\n");
  size_t width = 4;
  for (const auto& t : tensors) width = std::max(width, quoted(t.name).size());
  s += "\ntensors\n" + column("name", width) + column("type", 6) + column("layout", 6) + column("offset", 12) + column("bytes", 12) + "shape\n";
  for (const auto& t : tensors) {
    s += column(quoted(t.name), width) + column(std::string(t.type_name), 6) + column(t.interleaved ? "x16" : "rows", 6) + column(cat(t.offset), 12) +
         column(cat(t.bytes), 12) + "[";
    for (int i = 0; i < t.rank; i++) s += cat(i ? ", " : "", t.shape[i]);
    s += "]\n";
  }
  return s;
}

std::string describe_json(const PackFile& f) {
  const std::span<const WeightView> tensors = f.weights().all();
  std::string s;
  JsonWriter w(s);
  w.begin_object().field("path", f.path()).field("format", "packed").field("version", pack::kVersion);
  w.field("runtime", machine_of(f)).field("source", source_name(f)).field("name", f.model_name()).field("kv", name(f.kv()));
  w.key("sections").begin_array();
  for (const pack::Section& row : f.sections())
    w.begin_object().field("name", row.title()).field("offset", row.offset).field("bytes", row.bytes).field("hash", hex64(row.hash)).end_object();
  w.end_array().key("prefixes").begin_array();
  for (const PackFile::Prefix& p : f.prefixes())
    w.begin_object().field("name", p.name).field("tokens", uint64_t(p.ids.size())).field("bytes", uint64_t(p.kv.size())).end_object();
  w.end_array().key("defaults");
  if (f.defaults().empty()) w.null();
  else w.raw(f.defaults());
  w.key("tensors").begin_array();
  for (const auto& t : tensors) {
    w.begin_object().field("name", t.name).field("type", t.type_name).field("layout", t.interleaved ? "x16" : "rows").key("shape").begin_array();
    for (int i = 0; i < t.rank; i++) w.value(t.shape[i]);
    w.end_array().field("bytes", t.bytes).field("offset", t.offset).end_object();
  }
  w.end_array().end_object();
  return s + "\n";
}

}  // namespace

std::string describe_pack(const PackFile& file, bool json) { return json ? describe_json(file) : describe_text(file); }

}  // namespace tealight
