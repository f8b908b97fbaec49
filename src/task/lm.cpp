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
#include "src/pack/pack_file.h"
#include "src/task/prefix_cache.h"
#include "src/task/sequence.h"

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

class LmImpl final : public Lm {
 public:
  LmImpl(const std::string& path, const ModelFiles& model, const LoadOptions& o);
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
  std::optional<uint64_t> weights_hash() const override { return pack_ ? std::optional(pack_->weights_hash()) : std::nullopt; }
  std::span<const StateSnapshot> prefixes() const override { return prefixes_; }
  void finish_checks() override {
    if (pack_) pack_->check_tokenizer();
  }
  PrefixCache* prefix_cache() override { return cache_.get(); }
  Dtype kv_dtype() const override { return kv; }
  std::string_view default_fields() const override { return pack_ ? pack_->defaults() : std::string_view(); }
  const PackFile* packed() const override { return pack_.get(); }

  LoadOptions options;
  std::unique_ptr<CpuBackend> device;
  nn::Decoder decoder;                               // its weights point at `device`: declared after it
  Engine engine;                                     // points at both
  Dtype kv = Dtype::f32;

 private:
  void load_tokenizer_gguf(std::shared_ptr<const Gguf> file);
  void load_tokenizer_hf(const HfCheckpoint& hf);
  void adopt(std::shared_ptr<const Tokenizer> t);

  std::string architecture_, name_, template_source_, tokenizer_error_;
  std::shared_ptr<const PackFile> pack_;
  std::vector<StateSnapshot> prefixes_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::vector<std::shared_ptr<const Mapping>> files_;
  std::unique_ptr<PrefixCache> cache_;
  int64_t default_context_ = 0;
  enum class Pooling { none, mean, first, last } pooling_ = Pooling::none;
};

LmImpl::LmImpl(const std::string& path, const ModelFiles& model, const LoadOptions& o) : options(o), name_(last_part(path)) {
  const char* error = nullptr;
  const kernels::Table* table = kernels::choose(std::getenv("TEALIGHT_ISA"), &error);
  if (!table) fail(Code::usage, error);
  options.batch = std::clamp(options.batch, 1, 1 << 16);
  device = std::make_unique<CpuBackend>(*table, options.threads > 0 ? options.threads : default_threads(),
                                        options.activations == LoadOptions::Activations::int8);
  const auto& [pack, gguf, hf] = model;
  pack_ = pack;
  if (pack_ && !options.defer_checks) pack_->check_tokenizer();
  const models::Source source = gguf ? models::Source(gguf, *device) : models::Source(hf, *device);
  architecture_ = source.architecture();
  const models::Architecture* a = models::find_architecture(source);
  if (!a) fail(Code::unsupported, path, ": architecture ", quoted(architecture_), " is not known; known are: ", models::known_architectures());
  decoder = a->load(source);
  const std::span<const std::shared_ptr<const Mapping>> files = gguf ? gguf->weights().files() : hf->weights.files();
  files_.assign(files.begin(), files.end());
  if (const int64_t p = source.integer("pooling_type", "", 0); p >= 0 && p <= 3) pooling_ = Pooling(p);
  if (gguf) load_tokenizer_gguf(gguf);
  else load_tokenizer_hf(*hf);

  bool quantized = false;
  nn::each_weight(decoder, [&](const Tensor& w) { quantized |= w && is_quantized(w.dtype()); });
  if (options.kv == LoadOptions::Kv::automatic && pack_) kv = pack_->kv();
  else if (options.kv == LoadOptions::Kv::automatic) kv = quantized ? Dtype::f16 : Dtype::f32;
  else kv = options.kv == LoadOptions::Kv::f16    ? Dtype::f16
            : options.kv == LoadOptions::Kv::q8_0 ? Dtype::q8_0
            : options.kv == LoadOptions::Kv::q4_0 ? Dtype::q4_0
                                                  : Dtype::f32;
  for (const nn::State::LayerSpec& l : decoder.state_layers())
    if (is_quantized(kv) && (l.d % 32 || l.dv % 32))
      fail(Code::unsupported, path, ": keys and values of ", l.d, " and ", l.dv, " numbers; a cache of type ", tealight::name(kv), " takes multiples of 32");

  engine.device = device.get();
  engine.decoder = &decoder;
  engine.kv = kv;
  engine.reserve(options.batch);
  if (pack_ && pack_->fingerprint() == state_fingerprint())
    for (const PackFile::Prefix& p : pack_->prefixes()) prefixes_.push_back({p.ids, p.kv, pack_->fd(), p.offset});

  // Weights are mapped and can be dropped, but a model whose weights and smallest cache do not fit would only thrash.
  const uint64_t weights = weight_bytes(), available = available_memory();
  const auto layers = decoder.state_layers();
  const int asked = options.ctx > 0 ? options.ctx : 16;
  const uint64_t need = weights + nn::State::bytes_needed(layers, kv, asked);
  if (need > available)
    fail(Code::memory, path, ": needs ", need, " bytes of memory (weights ", weights, ", cache of ", asked, " positions ", need - weights,
         "), there are ", available);
  default_context_ = options.ctx > 0 ? options.ctx : decoder.context;
  if (options.ctx <= 0) {
    const uint64_t per_token = nn::State::bytes_needed(layers, kv, 16) / 16;
    const uint64_t room = (available - weights) / 2 / std::max<uint64_t>(per_token, 1);
    default_context_ = std::max<int64_t>(16, std::min<int64_t>(default_context_, int64_t(std::min<uint64_t>(room, 1 << 30))));
  }
  if (!prefixes().empty() || !options.cache_dir.empty()) cache_ = std::make_unique<PrefixCache>(*this);
  if (!options.cache_dir.empty()) cache_->open(options.cache_dir, options.cache_bytes);
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
  const uint64_t need = nn::State::bytes_needed(decoder.state_layers(), kv, int(std::min<int64_t>(capacity, INT32_MAX - 16)));
  if (const uint64_t available = available_memory(); need > available || capacity > INT32_MAX - 16)
    fail(Code::memory, "a cache of ", capacity, " positions needs ", need, " bytes, there are ", available);
  return std::make_unique<EngineSequence>(engine, int(capacity));
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
  constexpr uint64_t kFormat = 1;                    // of nn::State's memory
  std::string s = cat(kFormat, ' ', architecture_, ' ', tealight::name(kv), ' ', options.activations == LoadOptions::Activations::int8);
  for (const nn::State::LayerSpec& l : decoder.state_layers()) s += cat(' ', l.kv_heads, ' ', l.d, ' ', l.dv);
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

}  // namespace

std::unique_ptr<Lm> Lm::load(const std::string& path, const LoadOptions& options) { return load(path, open_model(path), options); }

std::unique_ptr<Lm> Lm::load(const std::string& path, const ModelFiles& files, const LoadOptions& options) {
  return std::make_unique<LmImpl>(path, files, options);
}

}  // namespace tealight
