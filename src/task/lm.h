// A loaded language model: weights, tokenizer and chat template from one path, and sequences that are evaluated.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/types.h"
#include "src/text/chat_template.h"
#include "src/text/tokenizer.h"

namespace tealight {

struct LoadOptions {
  int threads = 0;                  // 0: from affinity and quota
  int batch = 512;                  // prompt tokens evaluated together
  int ctx = 0;                      // positions; 0: the model's own context length, within the memory there is
  enum class Kv { automatic, f16, f32 } kv = Kv::automatic;      // automatic: f16 where weights are quantized, else f32
  enum class Activations { int8, f32 } activations = Activations::int8;
};

// One sequence with its cache. Not thread-safe; several may exist at a time and are evaluated in turn.
class Sequence {
 public:
  virtual ~Sequence() = default;
  // Appends tokens and evaluates them in batches. Returns the logits [vocab] after the last one, valid until the next call.
  // Errors: Code::request when the context is full, an id is out of range, or a value becomes NaN or infinite.
  virtual std::span<const float> eval(std::span<const TokenId> ids) = 0;
  // Like eval, but hands out every position's logits in order: sink(position, logits [vocab]).
  virtual void eval_all(std::span<const TokenId> ids, void (*sink)(void* context, size_t position, std::span<const float> logits),
                        void* context) = 0;
  virtual size_t position() const = 0;                           // tokens evaluated so far
  virtual size_t capacity() const = 0;                           // tokens that fit
  virtual void rewind(size_t position) = 0;                      // forgets all positions from this one on
};

class Lm {
 public:
  // path: a .gguf, a .safetensors beside its config.json, or a Hugging Face directory. Errors name the file and the cause.
  static std::unique_ptr<Lm> load(const std::string& path, const LoadOptions& options);
  virtual ~Lm() = default;

  // Makes the threads that evaluate, which would else be made at the first need: for hosts that enter a sandbox.
  virtual void warm_threads() {}
  // Room for `tokens` positions (0: as the options say). Fails with Code::memory, naming need and supply in bytes.
  virtual std::unique_ptr<Sequence> start(size_t tokens = 0) = 0;
  virtual const Tokenizer& tokenizer() const = 0;                // Code::tokenizer when the model has none
  virtual const ChatTemplate& chat_template() = 0;               // Code::template_ when the model has none; parsed on first use
  virtual size_t vocab() const = 0;
  virtual size_t context_length() const = 0;
  virtual std::string_view architecture() const = 0;
  virtual std::string_view name() const = 0;                     // general.name, or the path's last part
  virtual uint64_t weight_bytes() const = 0;                     // bytes read for one token of a dense model
};

}  // namespace tealight
