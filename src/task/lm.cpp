#include "src/task/lm.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "models/models.h"
#include "src/base/error.h"
#include "src/base/hash.h"
#include "src/base/read_ahead.h"
#include "src/pack/pack_file.h"
#include "src/task/draft.h"
#include "src/task/prefix_cache.h"
#include "src/task/sequence.h"
#include "src/task/weight_copy.h"

namespace tealight {
namespace {

std::string last_part(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return std::string(path.substr(path.rfind('/') + 1));
}

// Bytes of memory that a process may still take without swapping: free, buffers and page cache. Unknown: a very large number.
uint64_t available_memory() {
  struct sysinfo s;
  if (sysinfo(&s) != 0) return UINT64_MAX;
  uint64_t unit = s.mem_unit ? s.mem_unit : 1;
  uint64_t available = (uint64_t(s.freeram) + s.bufferram) * unit;
  // sysinfo does not count the page cache, which can be given up: /proc/meminfo does. It stays open, since a sandbox opens no file.
  static const int meminfo = ::open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
  char text[512];
  const ssize_t n = meminfo >= 0 ? ::pread(meminfo, text, sizeof text - 1, 0) : -1;
  if (n <= 0) return available;
  text[n] = 0;
  unsigned long long kb;
  const char* line = std::strstr(text, "MemAvailable:");
  return line && std::sscanf(line, "MemAvailable: %llu", &kb) == 1 ? kb * 1024 : available;
}

// Reads the weights of files that are not in memory, in the order of execution. Of the embedding the first tokens want a few rows
// only; where the head is the same matrix, it comes last. pack: with a coarse copy of the head before it, or null.
std::unique_ptr<ReadAhead> read_weights(const nn::Decoder& d, std::vector<std::shared_ptr<const Mapping>> files, const PackFile* pack) {
  if (pack) files.push_back(pack->file());
  if (std::none_of(files.begin(), files.end(), [](const auto& f) { return f->cold(); })) return nullptr;
  std::vector<std::span<const std::byte>> order;
  const auto add = [&](const Tensor& w) {
    if (w) order.push_back({w.data<std::byte>(), size_t(w.bytes())});
  };
  for (const nn::DecoderBlock& b : d.blocks) nn::each_weight(b, add);
  nn::each_weight(d.final_norm, add);
  if (pack) order.push_back(pack->search());
  nn::each_weight(d.head, add);
  return std::make_unique<ReadAhead>(files, order);
}

class LmImpl final : public Lm {
 public:
  // shared: the device of another model, which is evaluated in turn with this one.
  LmImpl(const std::string& path, const ModelFiles& model, const LoadOptions& o, std::shared_ptr<CpuBackend> shared = nullptr);
  void warm_threads() override { device->start_threads(); }
  std::unique_ptr<Sequence> start(size_t tokens) override;
  const Tokenizer& tokenizer() const override;
  const ChatTemplate& chat_template() override;
  size_t vocab() const override { return size_t(decoder.vocab()); }
  size_t context_length() const override { return size_t(decoder.context); }
  std::string_view architecture() const override { return architecture_; }
  std::string_view name() const override { return name_; }
  uint64_t weight_bytes() const override;
  void eval(std::span<SequenceWork> work) override { engine.eval(work); }
  uint64_t state_fingerprint() const override;
  std::span<const std::shared_ptr<const Mapping>> files() const override { return files_; }
  std::vector<float> embed(std::span<const TokenId> ids) override;
  std::vector<std::byte> head_search() override;
  std::optional<uint64_t> weights_hash() const override { return pack_ ? std::optional(pack_->weights_hash()) : std::nullopt; }
  std::span<const StateSnapshot> prefixes() const override { return prefixes_; }
  void finish_checks() override {
    if (pack_) pack_->check_tokenizer();
  }
  void copy_weights_now() override {
    if (copy_) copy_->finish();
  }
  size_t max_drafts() const override { return size_t(options.max_drafts); }
  float draft_cost() const override { return draft_ ? float(draft_->weight_bytes()) / float(weight_bytes()) : 0; }
  PrefixCache* prefix_cache() override { return cache_.get(); }
  Dtype kv_dtype() const override { return engine.memory->dtype(); }
  std::string_view default_fields() const override { return pack_ ? pack_->defaults() : std::string_view(); }
  const PackFile* packed() const override { return pack_.get(); }

  LoadOptions options;
  std::shared_ptr<CpuBackend> device;
  nn::Decoder decoder;                               // its weights point at `device`: declared after it
  Engine engine;                                     // points at both

 private:
  void load_tokenizer_gguf(std::shared_ptr<const Gguf> file);
  void load_tokenizer_hf(const HfCheckpoint& hf);
  void adopt(std::shared_ptr<const Tokenizer> t);
  void load_draft();

  std::string architecture_, name_, template_source_, tokenizer_error_;
  std::shared_ptr<const PackFile> pack_;
  std::vector<StateSnapshot> prefixes_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::vector<std::shared_ptr<const Mapping>> files_;
  std::unique_ptr<ReadAhead> read_ahead_;
  std::unique_ptr<PrefixCache> cache_;
  std::unique_ptr<WeightCopy> copy_;
  std::unique_ptr<Lm> draft_;                        // guesses for this one
  int64_t default_context_ = 0;
  enum class Pooling { none, mean, first, last } pooling_ = Pooling::none;
};

LmImpl::LmImpl(const std::string& path, const ModelFiles& model, const LoadOptions& o, std::shared_ptr<CpuBackend> shared)
    : options(o), device(std::move(shared)), name_(last_part(path)) {
  const char* error = nullptr;
  const kernels::Table* table = kernels::choose(std::getenv("TEALIGHT_ISA"), &error);
  if (!table) fail(Code::usage, error);
  options.batch = std::clamp(options.batch, 1, 1 << 16);
  options.max_drafts = std::clamp(options.max_drafts, 0, int(kMaxDrafts));
  if (!device)
    device = std::make_shared<CpuBackend>(*table, options.threads > 0 ? options.threads : default_threads(),
                                          options.activations == LoadOptions::Activations::int8);
  const auto& [pack, gguf, hf] = model;
  pack_ = pack;
  const models::Source source = gguf ? models::Source(gguf, *device) : models::Source(hf, *device);
  architecture_ = source.architecture();
  const models::Architecture* a = models::find_architecture(source);
  if (!a) fail(Code::unsupported, path, ": architecture ", quoted(architecture_), " is not known; known are: ", models::known_architectures());
  decoder = a->load(source);
  const std::span<const std::shared_ptr<const Mapping>> files = gguf ? gguf->weights().files() : hf->weights.files();
  files_.assign(files.begin(), files.end());
  read_ahead_ = read_weights(decoder, files_, pack_.get());
  if (pack_ && !options.defer_checks) pack_->check_tokenizer();
  if (const int64_t p = source.integer("pooling_type", "", 0); p >= 0 && p <= 3) pooling_ = Pooling(p);
  if (gguf) load_tokenizer_gguf(gguf);
  else load_tokenizer_hf(*hf);

  bool quantized = false;
  nn::each_weight(decoder, [&](const Tensor& w) { quantized |= w && is_quantized(w.dtype()); });
  Dtype kv;
  if (options.kv == LoadOptions::Kv::automatic && pack_) kv = pack_->kv();
  else if (options.kv == LoadOptions::Kv::automatic) kv = quantized ? Dtype::f16 : Dtype::f32;
  else kv = options.kv == LoadOptions::Kv::f16    ? Dtype::f16
            : options.kv == LoadOptions::Kv::q8_0 ? Dtype::q8_0
            : options.kv == LoadOptions::Kv::q4_0 ? Dtype::q4_0
                                                  : Dtype::f32;
  const auto layers = decoder.state_layers();
  for (const nn::StateMemory::LayerSpec& l : layers)
    if (is_quantized(kv) && (l.d % 32 || l.dv % 32))
      fail(Code::unsupported, path, ": keys and values of ", l.d, " and ", l.dv, " numbers; a cache of type ", tealight::name(kv), " takes multiples of 32");

  engine.device = device.get();
  engine.decoder = &decoder;
  engine.memory = std::make_unique<nn::StateMemory>(*device, layers, kv, options.keep_states || !options.cache_dir.empty() ? 0 : options.batch);
  engine.read_ahead = read_ahead_.get();
  engine.reserve(options.batch);
  if (pack_ && pack_->fingerprint() == state_fingerprint())
    for (const PackFile::Prefix& p : pack_->prefixes()) prefixes_.push_back({p.ids, p.kv, true});

  // Weights are mapped and can be dropped, but a model whose weights and smallest cache do not fit would only thrash.
  const uint64_t weights = weight_bytes(), available = available_memory();
  const int asked = options.ctx > 0 ? options.ctx : 16;
  const uint64_t need = weights + engine.memory->bytes_needed(asked);
  if (need > available)
    fail(Code::memory, path, ": needs ", need, " bytes of memory (weights ", weights, ", cache of ", asked, " positions ", need - weights,
         "), there are ", available);
  if (pack_ && !pack_->search().empty()) engine.search = std::make_unique<RowSearch>(*device, decoder.head.w, pack_->search(), pack_->file());
  if (options.copy_weights) {
    copy_ = std::make_unique<WeightCopy>(engine, decoder, (available - need) / 4);
    engine.copy = copy_.get();
  }
  default_context_ = options.ctx > 0 ? options.ctx : decoder.context;
  if (options.ctx <= 0) {
    default_context_ = std::max<int64_t>(16, std::min(default_context_, engine.memory->positions_in((available - weights) / 2)));
  }
  if (!prefixes().empty() || !options.cache_dir.empty()) cache_ = std::make_unique<PrefixCache>(*this);
  if (!options.cache_dir.empty()) cache_->open(options.cache_dir, options.cache_bytes);
  if (!options.draft_model.empty() && options.max_drafts > 0) load_draft();
}

// Guesses are token ids: both models must mean the same by them.
void LmImpl::load_draft() {
  constexpr size_t kPieces = 1000;                   // that are compared
  LoadOptions o = options;
  o.draft_model.clear(), o.cache_dir.clear();
  o.ctx = o.max_drafts = 0;
  o.defer_checks = false;
  draft_ = std::make_unique<LmImpl>(options.draft_model, open_model(options.draft_model), o, device);
  const Tokenizer &ours = tokenizer(), &theirs = draft_->tokenizer();
  const auto refuse = [&](const auto&... why) { fail(Code::usage, options.draft_model, ": cannot guess for ", name_, ", its vocabulary is another one: ", why...); };
  if (ours.size() != theirs.size()) refuse(theirs.size(), " tokens instead of ", ours.size());
  for (size_t id = 0, step = ours.size() / kPieces + 1; id < ours.size(); id += step)
    if (const auto a = ours.piece(TokenId(id)), b = theirs.piece(TokenId(id)); a != b) refuse("token ", id, " is ", quoted(b), " instead of ", quoted(a));
}

void LmImpl::adopt(std::shared_ptr<const Tokenizer> t) {
  // Some checkpoints round the embedding up; none may lack rows for tokens that text can become.
  if (t->size() > size_t(decoder.embedding.dim(0)))
    fail(Code::tokenizer, "the tokenizer has ", t->size(), " tokens, the embedding ", decoder.embedding.dim(0), " rows");
  tokenizer_ = std::move(t);
}

void LmImpl::load_tokenizer_gguf(std::shared_ptr<const Gguf> file) {
  if (auto n = file->string("general.name")) name_ = *n;
  else if (pack_) name_ = pack_->model_name();
  adopt(Tokenizer::from_gguf(file, pack_ ? &pack_->tables() : nullptr));
  template_source_ = tokenizer_->chat_template;
}

void LmImpl::load_tokenizer_hf(const HfCheckpoint& hf) {
  if (pack_) name_ = pack_->model_name();
  if (hf.tokenizer_json_path.empty()) {
    tokenizer_error_ = "the checkpoint has no tokenizer.json";
    return;
  }
  const auto json = hf.tokenizer_json ? hf.tokenizer_json : Mapping::open(hf.tokenizer_json_path);
  std::string config;
  if (hf.tokenizer_config.root()) JsonWriter(config).value(hf.tokenizer_config.root());
  auto t = std::const_pointer_cast<Tokenizer>(Tokenizer::from_json(json->text(), config, hf.tokenizer_json_path));
  // generation_config.json and config.json name further end tokens, one or a list.
  for (Json root : {hf.generation_config.root(), hf.config.root()}) {
    Json eos = root["eos_token_id"];
    auto add = [&](Json id) {
      if (!id.is_number()) return;
      const int64_t v = id.integer("eos_token_id");
      if (v >= 0 && v < int64_t(t->size()) && std::find(t->end_tokens.begin(), t->end_tokens.end(), TokenId(v)) == t->end_tokens.end())
        t->end_tokens.push_back(TokenId(v));
    };
    if (eos.is_array())
      for (Json e : eos.elements()) add(e);
    else add(eos);
  }
  adopt(std::move(t));
  template_source_ = hf.chat_template;
}

std::unique_ptr<Sequence> LmImpl::start(size_t tokens) {
  const int64_t capacity = tokens ? int64_t(tokens) : default_context_;
  const uint64_t need = engine.memory->bytes_needed(std::min<int64_t>(capacity, INT32_MAX - 16));
  if (const uint64_t available = available_memory(); need > available || capacity > INT32_MAX - 16)
    fail(Code::memory, "a cache of ", capacity, " positions needs ", need, " bytes, there are ", available);
  auto sequence = std::make_unique<EngineSequence>(engine, int(capacity));
  if (draft_) sequence->set_draft(draft_->start(std::min(size_t(capacity), draft_->context_length())));
  return sequence;
}

const Tokenizer& LmImpl::tokenizer() const {
  if (!tokenizer_) fail(Code::tokenizer, tokenizer_error_);
  return *tokenizer_;
}

const ChatTemplate& LmImpl::chat_template() {
  if (template_source_.empty()) fail(Code::template_, name_, " has no chat template");
  if (!template_) template_ = ChatTemplate::parse(template_source_);
  return *template_;
}

uint64_t LmImpl::weight_bytes() const {
  uint64_t n = 0;
  nn::each_weight(decoder, [&](const Tensor& w) {
    if (w && !(w.data<void>() == decoder.embedding.data<void>() && decoder.head.w.data<void>() != w.data<void>()))
      n += w.bytes();
  });
  // A tied head is visited twice, as the embedding and as the head, but read once.
  if (decoder.head.w.data<void>() == decoder.embedding.data<void>())
    n -= decoder.embedding.bytes();
  return n;
}

uint64_t LmImpl::state_fingerprint() const {
  constexpr uint64_t kFormat = 2;                    // of nn::State's snapshots
  std::string s = cat(kFormat, ' ', architecture_, ' ', tealight::name(kv_dtype()), ' ', options.activations == LoadOptions::Activations::int8);
  for (const nn::StateMemory::LayerSpec& l : decoder.state_layers()) s += cat(' ', l.kv_heads, ' ', l.d, ' ', l.dv, ' ', l.window);
  return hash64(s);
}

std::vector<float> LmImpl::embed(std::span<const TokenId> ids) {
  if (pooling_ == Pooling::none) fail(Code::unsupported, name_, " makes no embeddings: its file does not say how states are pooled");
  if (ids.empty()) fail(Code::request, "input: has no tokens");
  EngineSequence sequence(engine, int(std::min<size_t>(ids.size(), size_t(default_context_))));
  std::vector<double> sum(size_t(decoder.embedding.dim(1)));
  engine.each_hidden(sequence, ids, [&](size_t position, std::span<const float> row) {
    const bool wanted = pooling_ == Pooling::mean || position == (pooling_ == Pooling::first ? 0 : ids.size() - 1);
    for (size_t i = 0; wanted && i < sum.size(); i++) sum[i] += double(row[i]);
  });
  double squares = 0;
  for (double v : sum) squares += v * v;
  std::vector<float> out;
  for (double v : sum) out.push_back(float(squares > 0 ? v / std::sqrt(squares) : 0));
  return out;
}

std::vector<std::byte> LmImpl::head_search() {
  if (!decoder.searchable()) return {};
  // What usually comes: prose, a question, code, data, and other languages.
  constexpr std::string_view kText =
      "The lighthouse keeper counted the steps each morning and wrote the number in a small green book, as if it might change. "
      "Question: What is the boiling point of water? Answer: 100 degrees Celsius.\ndef first(items):\n    return items[0] if items else None\n"
      "{\"name\": \"Ada\", \"age\": 36, \"tags\": [\"math\", \"code\"]}\nLa capitale de la France est Paris. Der Zug kommt um acht Uhr an.";
  std::vector<TokenId> ids;
  if (tokenizer_) {
    const TextPart part{kText, false};
    ids = encode_prompt(*tokenizer_, {&part, 1});
  }
  for (size_t i = 0; ids.size() < 64; i++) ids.push_back(TokenId(i * 7919 % vocab()));
  ids.resize(std::min<size_t>(ids.size(), size_t(default_context_)));
  EngineSequence sequence(engine, int(ids.size()));
  std::vector<double> energy(size_t(decoder.head.w.dim(1)));
  engine.each_hidden(sequence, ids, [&](size_t, std::span<const float> row) {
    for (size_t k = 0; k < row.size(); k++) energy[k] += double(row[k]) * double(row[k]);
  });
  const size_t bytes = size_t(RowSearch::bytes_for(decoder.head.w));
  const Tensor made = Tensor::zeros(*device, {int64_t(bytes)}, Dtype::u8);
  RowSearch::Maker maker(*device, decoder.head.w, energy, made.data<std::byte>());
  while (maker.step(1024)) {}
  return {made.data<std::byte>(), made.data<std::byte>() + bytes};
}

}  // namespace

std::unique_ptr<Lm> Lm::load(const std::string& path, const LoadOptions& options) { return load(path, open_model(path), options); }

std::unique_ptr<Lm> Lm::load(const std::string& path, const ModelFiles& files, const LoadOptions& options) {
  return std::make_unique<LmImpl>(path, files, options);
}

}  // namespace tealight
