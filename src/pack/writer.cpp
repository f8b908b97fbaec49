#include "src/pack/writer.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/x16.h"
#include "models/models.h"
#include "src/base/checked.h"
#include "src/base/error.h"
#include "src/base/hash.h"
#include "src/io/gguf_writer.h"
#include "src/io/output_file.h"
#include "src/pack/elf.h"
#include "src/tensor/cpu_backend.h"

namespace tealight {
namespace {

using pack::Directory, pack::Section;

constexpr uint64_t kLargeArray = 1024;       // bytes of a metadata array from which on it lies apart
constexpr uint64_t kMinRows = 16;            // fewer rows would grow in the x16 layout
constexpr char kZeros[4096] = {};

// One tensor of the source, and what becomes of it.
struct Planned {
  const WeightView* view = nullptr;
  bool used = false, plain = false;          // plain: some use of it does not allow the x16 layout
  WeightView out;
  bool widen = false;                        // to f32
};

const kernels::Table& reference() {
  const char* error = nullptr;
  return *kernels::choose("ref", &error);
}

// May this view of a source's tensor be taken from its x16 layout too? Whole rows, from a multiple of 16 on.
bool fits_x16(const WeightView& v, const Tensor& w) {
  if (!has_x16(v.dtype) || w.rank() < 2 || !w.is_contiguous()) return false;
  const uint64_t columns = v.shape[v.rank - 1];
  return uint64_t(w.dim(-1)) == columns && uint64_t(w.data<std::byte>() - v.data) % (16 * row_bytes(v.dtype, columns)) == 0;
}

// The tensors of a source in the order in which a step reads them, each with its layout and place.
class Plan {
 public:
  explicit Plan(const ModelFiles& files) {
    CpuBackend device(reference(), 1, true);
    const models::Source source = files.gguf ? models::Source(files.gguf, device) : models::Source(files.hf, device);
    const models::Architecture* a = models::find_architecture(source);
    if (!a) fail(Code::unsupported, "architecture ", quoted(source.architecture()), " is not known; known are: ", models::known_architectures());
    const nn::Decoder decoder = a->load(source);
    for (const WeightView& v : (files.gguf ? files.gguf->weights() : files.hf->weights).all())
      if (v.computable) all_.push_back({&v});
    std::sort(all_.begin(), all_.end(), [](const Planned& x, const Planned& y) { return x.view->data < y.view->data; });

    // Few rows of the embedding are read, but all of the head: it is last, also where the two are one.
    std::vector<Planned*> used;
    const auto use = [&](const Tensor& w) {
      Planned* p = w ? holder(w) : nullptr;
      if (!p) return;
      p->plain |= !fits_x16(*p->view, w);
      if (!p->used) used.push_back(p);
      p->used = true;
    };
    nn::each_weight(decoder, use);
    if (Planned* p = decoder.positions ? holder(decoder.positions) : nullptr) p->plain = true;   // added, not multiplied
    std::rotate(used.begin(), used.begin() + !used.empty(), used.end());
    // What is converted while a model is loaded, or not used at all, is found by no address; the large of these are last.
    std::vector<Planned*> others;
    for (Planned& p : all_)
      if (!p.used) others.push_back(&p);
    std::sort(others.begin(), others.end(), [](const Planned* x, const Planned* y) { return x->view->name < y->view->name; });
    for (Planned* p : others) {
      p->plain = true;
      p->widen = p->view->rank == 1 && (p->view->dtype == Dtype::f16 || p->view->dtype == Dtype::bf16);
    }
    const auto small = [](const Planned* p) { return p->view->rank <= 1; };
    const auto large = std::stable_partition(others.begin(), others.end(), small);
    order_.assign(others.begin(), large);
    order_.insert(order_.end(), used.begin(), used.end());
    order_.insert(order_.end(), large, others.end());
    for (Planned* p : order_) place(*p);
  }

  std::span<Planned* const> tensors() const { return order_; }
  uint64_t bytes() const { return bytes_; }

 private:
  // The source's tensor that a weight is a view of.
  Planned* holder(const Tensor& w) {
    const auto* data = w.data<std::byte>();
    auto after = std::upper_bound(all_.begin(), all_.end(), data, [](const std::byte* d, const Planned& p) { return d < p.view->data; });
    if (after == all_.begin()) return nullptr;
    Planned& p = after[-1];
    return data < p.view->data + p.view->bytes ? &p : nullptr;
  }

  void place(Planned& p) {
    const WeightView& v = *p.view;
    WeightView& t = p.out;
    t.name = v.name;
    t.rank = v.rank;
    std::copy_n(v.shape, v.rank, t.shape);
    t.dtype = p.widen ? Dtype::f32 : v.dtype;
    const bool rows = v.rank == 2 ? v.shape[0] >= kMinRows : v.rank == 3 && v.shape[1] % 16 == 0;
    t.interleaved = v.interleaved || (!p.plain && rows);
    const auto bytes = pack::tensor_bytes(t.dtype, {t.shape, size_t(t.rank)}, t.interleaved);
    TEALIGHT_CHECK(bytes);
    t.bytes = *bytes;
    t.offset = bytes_ = align_up(bytes_, pack::kTensorAlignment);
    bytes_ += t.bytes;
  }

  std::vector<Planned> all_;                 // by address
  std::vector<Planned*> order_;
  uint64_t bytes_ = 0;
};

// Sections one after the other, with their checksums. Written in large pieces: file systems keep such a file in large folios, whose
// pages are mapped several times as fast.
class SectionWriter {
 public:
  SectionWriter(const PackOptions& o, uint64_t file_bytes) : file_(o.output, true), progress_(o.progress), file_bytes_(file_bytes) {
    buffer_.reserve(kPiece);
  }

  void begin(Section& s) {
    pad(s.offset);
    section_ = &s;
    hash_ = std::make_unique<Hasher>();
  }
  void write(const void* data, size_t bytes) {
    const auto* p = static_cast<const char*>(data);
    while (bytes) {
      const size_t n = std::min(bytes, kPiece - buffer_.size());
      buffer_.append(p, n);
      if (hash_) hash_->update(p, n);
      p += n;
      bytes -= n;
      at_ += n;
      if (buffer_.size() == kPiece) flush();
    }
  }
  void write(std::string_view s) { write(s.data(), s.size()); }
  void pad(uint64_t to) {
    while (at_ < to) write(kZeros, size_t(std::min<uint64_t>(to - at_, sizeof kZeros)));
  }
  void end() {
    TEALIGHT_CHECK(at_ == section_->offset + section_->bytes);
    section_->hash = hash_->digest();
    hash_.reset();
  }
  uint64_t at() const { return at_; }
  void finish() {
    flush();
    file_.finish();
  }

 private:
  void flush() {
    file_.write(buffer_.data(), buffer_.size());
    buffer_.clear();
    if (progress_) progress_(at_, file_bytes_);
  }

  static constexpr size_t kPiece = 1 << 20;
  OutputFile file_;
  std::string buffer_;
  std::function<void(uint64_t, uint64_t)> progress_;
  uint64_t file_bytes_, at_ = 0;
  Section* section_ = nullptr;
  std::unique_ptr<Hasher> hash_;
};

void write_interleaved(SectionWriter& out, const WeightView& v) {
  const uint64_t columns = v.shape[v.rank - 1], rows = v.elements() / columns, plain = row_bytes(v.dtype, columns);
  std::vector<std::byte> group(16 * x16_row_bytes(v.dtype, columns));
  for (uint64_t r = 0; r < rows; r += 16) {
    kernels::interleave_x16(v.dtype, v.data + r * plain, int(std::min<uint64_t>(16, rows - r)), int(columns), group.data());
    out.write(group.data(), group.size());
  }
}

void write_widened(SectionWriter& out, const WeightView& v, Backend& device) {
  Shape shape{int64_t(v.shape[0])};
  const std::vector<float> values = Tensor::view(device, v.data, shape, v.dtype, nullptr).to_vector();
  out.write(values.data(), values.size() * sizeof(float));
}

void write_tensors(SectionWriter& out, const Section& s, const Plan& plan) {
  CpuBackend device(reference(), 1, true);
  for (const Planned* p : plan.tensors()) {
    out.pad(s.offset + p->out.offset);
    if (p->widen) write_widened(out, *p->view, device);
    else if (p->out.interleaved && !p->view->interleaved) write_interleaved(out, *p->view);
    else out.write(p->view->data, size_t(p->view->bytes));
  }
}

// The executable's own bytes.
std::span<const std::byte> runtime_of(const std::string& path, const Mapping& file, const PackFile* packed, PackResult& result) {
  const std::span<const std::byte> bytes = packed ? packed->section("runtime") : file.bytes();
  const auto elf = pack::read_elf(bytes);
  if (!elf) fail(Code::format, path, ": not a 64-bit little-endian ELF executable, or one that was cut off; it cannot be the runtime");
  result.machine = elf->machine_name();
  if (elf->machine != 62 && elf->machine != 183)
    fail(Code::unsupported, path, ": an executable for machine ", elf->machine, "; x86-64 (62) and aarch64 (183) are supported");
  return bytes;
}

void append(std::string& blob, const void* data, size_t bytes) {
  blob.resize(size_t(align_up(blob.size(), pack::kTensorAlignment)), '\0');
  blob.append(static_cast<const char*>(data), bytes);
}

// Fills metadata, template and the tokenizer's part of the directory.
void take_gguf(const ModelFiles& files, Directory& d, std::string& metadata, std::string& chat_template, std::string& tokenizer) {
  GgufWriter small;
  for (const auto& [key, value] : files.gguf->metadata()) {
    if (key.starts_with("split.") || key == "general.alignment") continue;
    if (key == "tokenizer.chat_template" && value.type == GgufType::string && !value.is_array) {
      chat_template.assign(reinterpret_cast<const char*>(value.data), size_t(value.bytes));
    } else if (value.is_array && value.bytes >= kLargeArray) {
      append(tokenizer, value.data, size_t(value.bytes));
      d.arrays.push_back({key, value.type, value.count, tokenizer.size() - value.bytes, value.bytes});
    } else {
      small.set(key, value);
    }
  }
  metadata = small.bytes();
  const auto t = Tokenizer::from_gguf(files.gguf, files.pack ? &files.pack->tables() : nullptr);
  const std::unique_ptr<MadeTables> made = make_tables(*t);
  for (uint32_t i = 0; i < TokenizerTables::count; i++) {
    const std::span<const uint32_t> words = made->tables.of[i];
    append(tokenizer, words.data(), words.size_bytes());
    d.tables.push_back({i, tokenizer.size() - words.size_bytes(), words.size()});
  }
}

void take_hf(const ModelFiles& files, const std::string& path, std::string& metadata, std::string& chat_template, std::string& tokenizer) {
  if (files.pack) {
    metadata = std::string(reinterpret_cast<const char*>(files.pack->section("metadata").data()), files.pack->section("metadata").size());
  } else {
    const HfCheckpoint::Texts texts = HfCheckpoint::texts(path);
    for (const std::string* t : {&texts.config, &texts.generation_config, &texts.tokenizer_config}) StringList::append(metadata, *t);
  }
  chat_template = files.hf->chat_template;
  if (files.hf->tokenizer_json) tokenizer = files.hf->tokenizer_json->text();
  else if (!files.hf->tokenizer_json_path.empty()) tokenizer = Mapping::open(files.hf->tokenizer_json_path)->text();
}

std::string last_part(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return std::string(path.substr(path.rfind('/') + 1));
}

std::string head_bytes(std::span<const Section> sections, uint64_t file_bytes) {
  pack::Head head{};
  std::memcpy(head.magic, pack::kHeadMagic, sizeof head.magic);
  head.version = pack::kVersion;
  head.n_sections = uint32_t(sections.size());
  head.file_bytes = file_bytes;
  std::string s(reinterpret_cast<const char*>(&head), sizeof head);
  for (Section row : sections) {
    row.hash = 0;
    s.append(reinterpret_cast<const char*>(&row), sizeof row);
  }
  return s;
}

std::string footer_bytes(std::span<const Section> sections, uint64_t table_offset) {
  pack::Footer f{};
  std::memcpy(f.magic, pack::kMagic, sizeof f.magic);
  f.version = pack::kVersion;
  f.n_sections = uint32_t(sections.size());
  f.table_offset = table_offset;
  f.file_bytes = table_offset + sections.size_bytes() + sizeof f;
  f.table_hash = hash64({reinterpret_cast<const char*>(sections.data()), sections.size_bytes()});
  f.hash = hash64({reinterpret_cast<const char*>(&f), offsetof(pack::Footer, hash)});
  return std::string(reinterpret_cast<const char*>(&f), sizeof f);
}

// Places sections of known sizes one after the other.
class Layout {
 public:
  void add(std::string_view name, uint64_t bytes) {
    Section s{};
    TEALIGHT_CHECK(name.size() < sizeof s.name);
    name.copy(s.name, name.size());
    s.offset = end_ = align_up(end_, pack::section_alignment(name));
    s.bytes = bytes;
    end_ += bytes;
    rows.push_back(s);
  }
  Section& operator[](std::string_view name) {
    return *std::find_if(rows.begin(), rows.end(), [&](const Section& s) { return s.title() == name; });
  }
  uint64_t end() const { return align_up(end_, 64); }
  uint64_t file_bytes() const { return end() + rows.size() * sizeof(Section) + sizeof(pack::Footer); }
  std::vector<Section> rows;

 private:
  uint64_t end_ = 0;
};

}  // namespace

PackResult write_pack(const PackOptions& o) {
  if (o.prefixes.size() + 16 > pack::kMaxSections) fail(Code::request, o.prefixes.size(), " prefixes are more than ", pack::kMaxSections - 16);
  PackResult result;
  const auto packed_runtime = PackFile::open(o.runtime);
  const auto runtime_file = Mapping::open(o.runtime);
  const std::span<const std::byte> runtime = runtime_of(o.runtime, *runtime_file, packed_runtime.get(), result);
  const ModelFiles files = open_model(o.model);
  if (files.pack) files.pack->check_tokenizer();
  const Plan plan(files);

  Directory d;
  d.source = files.gguf ? pack::SourceKind::gguf : pack::SourceKind::hf;
  d.kv = o.kv;
  d.fingerprint = o.fingerprint;
  const std::string model = files.pack ? std::string(files.pack->model_name()) : last_part(o.model);
  d.model = model;
  for (const Planned* p : plan.tensors()) {
    d.tensors.push_back(p->out);
    result.n_interleaved += p->out.interleaved;
  }
  std::string metadata, chat_template, tokenizer;
  if (files.gguf) take_gguf(files, d, metadata, chat_template, tokenizer);
  else take_hf(files, o.model, metadata, chat_template, tokenizer);
  for (const PackOptions::Prefix& p : o.prefixes) d.prefixes.push_back({p.name, p.ids});

  Layout layout;
  layout.add("runtime", runtime.size());
  layout.add("head", sizeof(pack::Head) + (8 + !o.search.empty() + o.prefixes.size()) * sizeof(Section));
  layout.add("tensors", plan.bytes());
  if (!o.search.empty()) layout.add("search", o.search.size());
  for (size_t i = 0; i < o.prefixes.size(); i++) {
    layout.add(cat("kv.", i), o.prefixes[i].kv.size());
    result.kv_bytes += o.prefixes[i].kv.size();
  }
  layout.add("tokenizer", tokenizer.size());
  layout.add("metadata", metadata.size());
  layout.add("template", chat_template.size());
  layout.add("defaults", o.defaults.size());
  const std::string directory = d.bytes();
  layout.add("directory", directory.size());

  SectionWriter out(o, layout.file_bytes());
  const auto put = [&](std::string_view name, const void* data, size_t bytes) {
    out.begin(layout[name]);
    out.write(data, bytes);
    out.end();
  };
  put("runtime", runtime.data(), runtime.size());
  const std::string head = head_bytes(layout.rows, layout.file_bytes());
  put("head", head.data(), head.size());
  Section& tensors = layout["tensors"];
  out.begin(tensors);
  write_tensors(out, tensors, plan);
  out.end();
  if (!o.search.empty()) put("search", o.search.data(), o.search.size());
  for (size_t i = 0; i < o.prefixes.size(); i++) put(cat("kv.", i), o.prefixes[i].kv.data(), o.prefixes[i].kv.size());
  put("tokenizer", tokenizer.data(), tokenizer.size());
  put("metadata", metadata.data(), metadata.size());
  put("template", chat_template.data(), chat_template.size());
  put("defaults", o.defaults.data(), o.defaults.size());
  put("directory", directory.data(), directory.size());
  out.pad(layout.end());
  out.write(layout.rows.data(), layout.rows.size() * sizeof(Section));
  out.write(footer_bytes(layout.rows, layout.end()));
  TEALIGHT_CHECK(out.at() == layout.file_bytes());
  out.finish();

  result.file_bytes = layout.file_bytes();
  result.runtime_bytes = runtime.size();
  result.tensors_bytes = plan.bytes();
  result.search_bytes = o.search.size();
  result.tokenizer_bytes = tokenizer.size();
  result.n_tensors = d.tensors.size();
  return result;
}

}  // namespace tealight
