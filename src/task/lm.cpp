#include "src/task/lm.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sys/sysinfo.h>

#include "models/models.h"
#include "src/base/error.h"
#include "src/tensor/cpu_backend.h"

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
  // sysinfo does not count the page cache, which can be given up: /proc/meminfo does.
  if (std::FILE* f = std::fopen("/proc/meminfo", "re")) {
    char line[128];
    unsigned long long kb;
    while (std::fgets(line, sizeof line, f))
      if (std::sscanf(line, "MemAvailable: %llu", &kb) == 1) available = kb * 1024;
    std::fclose(f);
  }
  return available;
}

class LmImpl final : public Lm {
 public:
  LmImpl(const std::string& path, const LoadOptions& o);
  std::unique_ptr<Sequence> start(size_t tokens) override;
  const Tokenizer& tokenizer() const override;
  const ChatTemplate& chat_template() override;
  size_t vocab() const override { return size_t(decoder.vocab()); }
  size_t context_length() const override { return size_t(decoder.context); }
  std::string_view architecture() const override { return architecture_; }
  std::string_view name() const override { return name_; }
  uint64_t weight_bytes() const override;

  LoadOptions options;
  std::unique_ptr<CpuBackend> device;
  nn::Decoder decoder;                               // its weights point at `device`: declared after it
  Dtype kv = Dtype::f32;

 private:
  void load_tokenizer_gguf(std::shared_ptr<const Gguf> file);
  void load_tokenizer_hf(const HfCheckpoint& hf);
  void adopt(std::shared_ptr<const Tokenizer> t);

  std::string architecture_, name_, template_source_, tokenizer_error_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  int64_t default_context_ = 0;
};

class SequenceImpl final : public Sequence {
 public:
  SequenceImpl(LmImpl& lm, int capacity) : lm_(lm), state_(*lm.device, lm.decoder.state_layers(), lm.kv, capacity), capacity_(size_t(capacity)) {
    ids_.reserve(capacity_);
    const size_t batch = size_t(lm.options.batch);
    positions_.reserve(batch);
    states_.assign(batch, &state_);
    rows_.reserve(batch);
  }

  std::span<const float> eval(std::span<const TokenId> ids) override {
    run(ids, nullptr, nullptr);
    return {logits_.data(), lm_.vocab()};
  }
  void eval_all(std::span<const TokenId> ids, void (*sink)(void*, size_t, std::span<const float>), void* context) override {
    run(ids, sink, context);
  }
  size_t position() const override { return ids_.size(); }
  size_t capacity() const override { return capacity_; }
  void rewind(size_t position) override {
    if (position < ids_.size()) ids_.resize(position);
    state_.length = int(ids_.size());
  }

 private:
  using Sink = void (*)(void*, size_t, std::span<const float>);

  // Appends and evaluates; logits_ is left with the last row. On an error the sequence is as it was.
  void run(std::span<const TokenId> ids, Sink sink, void* context) {
    if (ids.empty()) fail(Code::request, "nothing to evaluate: no tokens");
    if (ids.size() > capacity_ - ids_.size())
      fail(Code::request, "the sequence would have ", ids_.size() + ids.size(), " tokens, its context holds ", capacity_);
    for (TokenId id : ids)
      if (id < 0 || size_t(id) >= size_t(lm_.decoder.embedding.dim(0)))
        fail(Code::request, "token id ", id, " is outside of the vocabulary of ", lm_.decoder.embedding.dim(0));
    const size_t before = ids_.size();
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    try {
      // The longer form of the rotation holds for the whole sequence: when it begins to apply, all positions are evaluated anew.
      const bool now_long = lm_.decoder.has_long_rope() && int64_t(ids_.size()) > lm_.decoder.original_context();
      size_t from = before;
      if (now_long != long_ && before) from = 0;
      long_ = now_long;
      while (from < ids_.size()) {
        const size_t n = std::min(ids_.size() - from, size_t(lm_.options.batch));
        step(from, n, from + n == ids_.size(), sink, context, before);
        from += n;
      }
    } catch (...) {
      rewind(before);
      throw;
    }
    state_.length = int(ids_.size());
  }

  void step(size_t from, size_t n, bool last, Sink sink, void* context, size_t wanted_from) {
    positions_.clear();
    for (size_t i = 0; i < n; i++) positions_.push_back(int32_t(from + i));
    nn::Batch b{{ids_.data() + from, n}, positions_, {states_.data(), n}, rows_};
    Tensor h = lm_.decoder.hidden(b, long_);
    if (sink) {
      // Logits of many positions are made in pieces: a vocabulary is wide.
      for (size_t i = 0; i < n; i += kLogitRows) {
        const size_t m = std::min(kLogitRows, n - i);
        if (from + i + m <= wanted_from) continue;
        logits_ = lm_.decoder.logits(h.slice(0, int64_t(i), int64_t(i + m)));
        check_fault();
        for (size_t j = 0; j < m; j++)
          if (from + i + j >= wanted_from) sink(context, from + i + j, {logits_.data() + j * lm_.vocab(), lm_.vocab()});
      }
      return;
    }
    if (last) logits_ = lm_.decoder.logits(h.slice(0, int64_t(n) - 1, int64_t(n)));
    check_fault();
  }

  void check_fault() {
    bool bad = lm_.device->take_fault();
    if (!bad && logits_) bad = !lm_.device->kernels().all_finite(logits_.data(), size_t(logits_.elements()));
    if (bad) fail(Code::request, "the model computed a value that is not finite (NaN or infinity)");
  }

  static constexpr size_t kLogitRows = 32;
  LmImpl& lm_;
  nn::State state_;
  const size_t capacity_;
  std::vector<TokenId> ids_;
  std::vector<int32_t> positions_;
  std::vector<nn::State*> states_;
  std::vector<AttentionRow> rows_;
  Tensor logits_;
  bool long_ = false;
};

LmImpl::LmImpl(const std::string& path, const LoadOptions& o) : options(o), name_(last_part(path)) {
  const char* error = nullptr;
  const kernels::Table* table = kernels::choose(std::getenv("TEALIGHT_ISA"), &error);
  if (!table) fail(Code::usage, error);
  options.batch = std::clamp(options.batch, 1, 1 << 16);
  device = std::make_unique<CpuBackend>(*table, options.threads > 0 ? options.threads : default_threads(),
                                        options.activations == LoadOptions::Activations::int8);
  std::shared_ptr<const Gguf> gguf;
  std::shared_ptr<const HfCheckpoint> hf;
  const bool is_gguf = !is_directory(path) && Mapping::open(path)->text().starts_with("GGUF");
  if (is_gguf) gguf = std::make_shared<const Gguf>(Gguf::open(path));
  else hf = std::make_shared<const HfCheckpoint>(HfCheckpoint::open(path));
  const models::Source source = gguf ? models::Source(gguf, *device) : models::Source(hf, *device);
  architecture_ = source.architecture();
  const models::Architecture* a = models::find_architecture(source);
  if (!a) fail(Code::unsupported, path, ": architecture ", quoted(architecture_), " is not known; known are: ", models::known_architectures());
  decoder = a->load(source);
  if (gguf) load_tokenizer_gguf(gguf);
  else load_tokenizer_hf(*hf);

  bool quantized = false;
  nn::each_weight(decoder, [&](const Tensor& w) { quantized |= w && is_quantized(w.dtype()); });
  if (options.kv == LoadOptions::Kv::automatic) kv = quantized ? Dtype::f16 : Dtype::f32;
  else kv = options.kv == LoadOptions::Kv::f16 ? Dtype::f16 : Dtype::f32;

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
}

void LmImpl::adopt(std::shared_ptr<const Tokenizer> t) {
  // Some checkpoints round the embedding up; none may lack rows for tokens that text can become.
  if (t->size() > size_t(decoder.embedding.dim(0)))
    fail(Code::tokenizer, "the tokenizer has ", t->size(), " tokens, the embedding ", decoder.embedding.dim(0), " rows");
  tokenizer_ = std::move(t);
}

void LmImpl::load_tokenizer_gguf(std::shared_ptr<const Gguf> file) {
  if (auto n = file->string("general.name")) name_ = *n;
  adopt(Tokenizer::from_gguf(file));
  template_source_ = tokenizer_->chat_template;
}

void LmImpl::load_tokenizer_hf(const HfCheckpoint& hf) {
  if (hf.tokenizer_json_path.empty()) {
    tokenizer_error_ = "the checkpoint has no tokenizer.json";
    return;
  }
  auto json = Mapping::open(hf.tokenizer_json_path);
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
  return std::make_unique<SequenceImpl>(*this, int(capacity));
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

}  // namespace

std::unique_ptr<Lm> Lm::load(const std::string& path, const LoadOptions& options) { return std::make_unique<LmImpl>(path, options); }

}  // namespace tealight
