#include "src/pack/pack_file.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "src/base/checked.h"
#include "src/base/error.h"
#include "src/base/hash.h"
#include "src/pack/elf.h"

namespace tealight {

using pack::Footer, pack::Head, pack::Section;

namespace {

// Checked when the file is opened: small, and needed before anything else.
constexpr std::string_view kSmall[] = {"metadata", "template", "defaults", "directory"};
// In the order of the file; "kv.N" comes after the tensors.
constexpr std::string_view kNeeded[] = {"runtime", "head", "tensors", "tokenizer", "metadata", "template", "defaults", "directory"};
constexpr size_t kHashPiece = 16 << 20;

std::string_view view(std::span<const std::byte> b) { return {reinterpret_cast<const char*>(b.data()), b.size()}; }

template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Of a file without a footer: fails if it was a packed one that has been cut off.
void refuse_truncated(const Mapping& file) {
  const auto elf = pack::read_elf(file.bytes());
  if (!elf) return;
  const uint64_t at = align_up(elf->end, pack::kPage);
  if (!inside(at, sizeof(Head), file.size())) return;
  const auto head = load<Head>(file.data() + at);
  if (std::memcmp(head.magic, pack::kHeadMagic, sizeof head.magic)) return;
  std::string_view cut = "table";
  for (uint32_t i = 0; i < std::min(head.n_sections, pack::kMaxSections); i++) {
    const uint64_t row = at + sizeof head + i * sizeof(Section);
    if (!inside(row, sizeof(Section), file.size())) {
      cut = "head";
      break;
    }
    const auto s = load<Section>(file.data() + row);
    if (inside(s.offset, s.bytes, file.size())) continue;
    fail(Code::format, file.path(), ": section ", quoted(s.title()), ": it is cut off: the file has ", file.size(), " of ", head.file_bytes, " bytes");
  }
  fail(Code::format, file.path(), ": section \"", cut, "\": it is cut off or altered: the file has ", file.size(), " of ", head.file_bytes, " bytes");
}

// Does a file of so many bytes end as packed files do?
bool has_footer(int fd, off_t size) {
  char magic[sizeof Footer::magic] = {};
  return size >= off_t(sizeof(Footer)) && pread(fd, magic, sizeof magic, size - off_t(sizeof(Footer))) == ssize_t(sizeof magic) &&
         !std::memcmp(magic, pack::kMagic, sizeof magic);
}

}  // namespace

std::shared_ptr<const PackFile> PackFile::open(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st;
  if (!file || fstat(file.get(), &st) != 0 || !S_ISREG(st.st_mode)) return nullptr;
  if (!has_footer(file.get(), st.st_size)) {
    char first[4] = {};
    if (pread(file.get(), first, 4, 0) == 4 && !std::memcmp(first, "\177ELF", 4)) refuse_truncated(*Mapping::of_fd(file.get(), path));
    return nullptr;
  }
  auto mapping = Mapping::of_fd(file.get(), path);
  return std::shared_ptr<const PackFile>(new PackFile(std::move(mapping)));
}

std::shared_ptr<const PackFile> PackFile::parse(std::shared_ptr<const Mapping> file) {
  return std::shared_ptr<const PackFile>(new PackFile(std::move(file)));
}

PackFile::PackFile(std::shared_ptr<const Mapping> file) : file_(std::move(file)) {
  read_table();
  for (std::string_view name : kSmall) check(*find(name));
  directory_ = pack::Directory::read(text("directory"), section("tensors").size(), section("tokenizer").size(), where("directory"));
  for (size_t i = 0; i < directory_.prefixes.size(); i++)
    if (!find(cat("kv.", i))) fail(Code::format, where(cat("kv.", i)), "it is missing; the directory has ", directory_.prefixes.size(), " prefixes");
  for (const pack::Directory::Table& t : directory_.tables)
    tables_.of[t.which] = {reinterpret_cast<const uint32_t*>(section("tokenizer").data() + t.offset), size_t(t.count)};
  if (directory_.source == pack::SourceKind::gguf) make_gguf();
  else make_hf();
}

std::string PackFile::where(std::string_view section) const { return cat(file_->path(), ": section ", quoted(section), ": "); }

void PackFile::read_table() {
  const std::span<const std::byte> bytes = file_->bytes();
  Footer f{};
  if (bytes.size() >= sizeof f) f = load<Footer>(bytes.data() + bytes.size() - sizeof f);
  if (std::memcmp(f.magic, pack::kMagic, sizeof f.magic)) {
    refuse_truncated(*file_);
    fail(Code::format, file_->path(), ": not a packed file");
  }
  if (hash64({reinterpret_cast<const char*>(&f), offsetof(Footer, hash)}) != f.hash) fail(Code::format, where("footer"), "it was altered: the checksum differs");
  if (f.version != pack::kVersion) fail(Code::unsupported, where("footer"), "version ", f.version, " of the format; this program knows ", pack::kVersion);
  if (f.file_bytes != bytes.size()) fail(Code::format, where("footer"), "the file has ", bytes.size(), " bytes, it was written with ", f.file_bytes);
  const uint64_t table_bytes = uint64_t(f.n_sections) * sizeof(Section), end = bytes.size() - sizeof f;
  if (f.n_sections > pack::kMaxSections || !inside(f.table_offset, table_bytes, end))
    fail(Code::format, where("table"), f.n_sections, " sections at byte ", f.table_offset, " pass the end");
  if (hash64(view(bytes.subspan(size_t(f.table_offset), size_t(table_bytes)))) != f.table_hash)
    fail(Code::format, where("table"), "it was altered: the checksum differs");
  uint64_t at = 0;
  for (uint32_t i = 0; i < f.n_sections; i++) {
    const auto s = load<Section>(bytes.data() + f.table_offset + i * sizeof(Section));
    const std::string_view name = s.title();
    if (s.offset < at || s.offset % pack::section_alignment(name) || !inside(s.offset, s.bytes, f.table_offset))
      fail(Code::format, where(name), s.bytes, " bytes at ", s.offset, " overlap another section or pass the end");
    if (find(name)) fail(Code::format, where(name), "it is there twice");
    at = s.offset + s.bytes;
    sections_.push_back(s);
  }
  for (std::string_view name : kNeeded)
    if (!find(name)) fail(Code::format, where(name), "it is missing");
}

const Section* PackFile::find(std::string_view name) const {
  for (const Section& s : sections_)
    if (s.title() == name) return &s;
  return nullptr;
}

std::span<const std::byte> PackFile::section(std::string_view name) const {
  const Section* s = find(name);
  return s ? file_->bytes().subspan(size_t(s->offset), size_t(s->bytes)) : std::span<const std::byte>();
}

std::string_view PackFile::text(std::string_view name) const { return view(section(name)); }

void PackFile::check(const Section& s, const std::function<void(uint64_t)>& progress, uint64_t done) const {
  const std::string_view bytes = text(s.title());
  uint64_t hash;
  if (!progress) {
    hash = hash64(bytes);
  } else {
    Hasher h;
    for (size_t at = 0; at < bytes.size(); at += kHashPiece) {
      h.update(bytes.data() + at, std::min(kHashPiece, bytes.size() - at));
      progress(done + std::min(at + kHashPiece, bytes.size()));
    }
    hash = h.digest();
  }
  if (hash != s.hash) fail(Code::format, where(s.title()), "it was altered: the checksum differs");
}

void PackFile::check_tokenizer() const {
  if (tokenizer_checked_.load(std::memory_order_relaxed)) return;
  check(*find("tokenizer"));
  tokenizer_checked_.store(true, std::memory_order_relaxed);
}

void PackFile::verify(const std::function<void(uint64_t)>& progress) const {
  uint64_t at = 0;
  for (const Section& s : sections_) {
    for (std::byte b : file_->bytes().subspan(size_t(at), size_t(s.offset - at)))
      if (b != std::byte(0)) fail(Code::format, where(s.title()), "the bytes before it were altered: they are not zero");
    check(s, progress, s.offset);
    at = s.offset + s.bytes;
  }
}

std::vector<PackFile::Prefix> PackFile::prefixes() const {
  std::vector<Prefix> out;
  for (size_t i = 0; i < directory_.prefixes.size(); i++) out.push_back({directory_.prefixes[i].name, directory_.prefixes[i].ids, section(cat("kv.", i))});
  return out;
}

void PackFile::move_tensors(WeightSet& weights, uint32_t file) {
  weights.add_file(file_);
  const Section* s = find("tensors");
  for (WeightView& v : directory_.tensors) {
    v.offset += s->offset;
    v.data = file_->data() + v.offset;
    v.file = file;
  }
  weights.take(std::move(directory_.tensors));
  weights.index();
}

void PackFile::make_gguf() {
  const Section* s = find("metadata");
  auto g = std::make_shared<Gguf>(Gguf::parse(Mapping::part(file_, size_t(s->offset), size_t(s->bytes), where("metadata"))));
  if (!g->weights().all().empty()) fail(Code::format, where("metadata"), "it has tensors");
  const std::span<const std::byte> arrays = section("tokenizer");
  for (const pack::Directory::Array& a : directory_.arrays) g->add(a.key, {a.type, true, a.count, arrays.data() + a.offset, a.bytes});
  if (const std::string_view t = chat_template(); !t.empty())
    g->add("tokenizer.chat_template", {GgufType::string, false, 1, reinterpret_cast<const std::byte*>(t.data()), t.size()});
  move_tensors(g->weights(), 1);        // file 0 is the metadata
  gguf_ = std::move(g);
}

void PackFile::make_hf() {
  HfCheckpoint::Texts texts;
  std::string_view rest = text("metadata");
  for (std::string* t : {&texts.config, &texts.generation_config, &texts.tokenizer_config}) {
    uint64_t n = 0;
    if (rest.size() >= 8) std::memcpy(&n, rest.data(), 8);
    if (rest.size() < 8 || n > rest.size() - 8) fail(Code::format, where("metadata"), "a text passes the end");
    *t = rest.substr(8, size_t(n));
    rest.remove_prefix(8 + size_t(n));
  }
  auto hf = std::make_shared<HfCheckpoint>(HfCheckpoint::parse(texts, where("metadata")));
  hf->chat_template = chat_template();
  if (const Section* s = find("tokenizer"); s->bytes) {
    hf->tokenizer_json_path = cat(file_->path(), ": tokenizer.json");
    hf->tokenizer_json = Mapping::part(file_, size_t(s->offset), size_t(s->bytes), hf->tokenizer_json_path);
  }
  move_tensors(hf->weights, 0);
  hf_ = std::move(hf);
}

ModelFiles open_model(const std::string& path) {
  ModelFiles m;
  m.pack = PackFile::open(path);
  if (m.pack) {
    m.gguf = m.pack->gguf();
    m.hf = m.pack->hf();
    return m;
  }
  const auto file = is_directory(path) ? nullptr : Mapping::open(path);
  if (file && file->text().starts_with("\177ELF")) fail(Code::format, path, ": an executable without packed weights, or the head of a packed one");
  if (file && file->text().starts_with("GGUF")) m.gguf = std::make_shared<const Gguf>(Gguf::open(file));
  else m.hf = std::make_shared<const HfCheckpoint>(HfCheckpoint::open(path));
  return m;
}

std::string own_executable() {
  const char* path = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  return path ? path : "";
}

std::string default_model() {
  if (const char* model = std::getenv("TEALIGHT_MODEL"); model && *model) return model;
  const std::string own = own_executable();
  const Fd file(::open(own.c_str(), O_RDONLY | O_CLOEXEC));
  return file && has_footer(file.get(), lseek(file.get(), 0, SEEK_END)) ? own : "";
}

}  // namespace tealight
