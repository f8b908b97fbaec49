// A loaded language model: weights, tokenizer and chat template from one path, and sequences that are evaluated.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/types.h"
#include "src/base/error.h"
#include "src/base/mapping.h"
#include "src/nn/sampler.h"
#include "src/text/chat_template.h"
#include "src/text/tokenizer.h"

namespace tealight {

class PackFile;

struct LoadOptions {
  int threads = 0;                  // 0: from affinity and quota
  int batch = 512;                  // prompt tokens evaluated together
  int ctx = 0;                      // positions; 0: the model's own context length, within the memory there is
  enum class Kv { automatic, f16, f32, q8_0, q4_0 } kv = Kv::automatic;   // automatic: f16 where weights are quantized, else f32
  enum class Activations { int8, f32 } activations = Activations::int8;
  std::string cache_dir;            // stored prefixes are found and put there (prefix_cache.h); empty: nowhere
  uint64_t cache_bytes = uint64_t(1) << 30;
  // A process that lives copies its weights, in the layout that is fastest, into memory of large pages, step by step after its first
  // tokens; where there is memory enough.
  bool copy_weights = true;
  int max_drafts = 8;               // most tokens that are guessed and checked at a time (draft.h); 0: none
  std::string draft_model;          // a smaller model with the same vocabulary that guesses them; empty: text that repeats is guessed
  bool keep_states = false;         // layers with a window keep the positions before it: states can be saved. So it is with a cache_dir
  bool defer_checks = false;        // a packed file's tokenizer is not checked before Lm::finish_checks()
};

// The state of the first tokens of a sequence, as bytes that are the same on every machine.
struct StateSnapshot {
  std::span<const TokenId> ids;
  std::span<const std::byte> state;    // snapshot_bytes(ids.size())
  bool in_place = false;               // `state` outlives all sequences and is used where it lies, at a multiple of 64 bytes
};

using LogitsSink = void (*)(void* context, size_t position, std::span<const float> logits);

// One sequence with its cache. Not thread-safe; several may exist at a time and are evaluated in turn, or together by Lm::eval.
class Sequence {
 public:
  virtual ~Sequence() = default;
  // Appends tokens and evaluates them in batches. Returns the logits [vocab] after the last one, valid until the next call.
  // Errors: Code::request when the context is full, an id is out of range, or a value becomes NaN or infinite; the sequence is as
  // it was before then.
  virtual std::span<const float> eval(std::span<const TokenId> ids) = 0;
  // Like eval, but returns the logits after each of the last `rows` tokens: at least 1, at most ids.size(). best > 0: the so many
  // largest of each row are enough, and are found without the others where that is quicker.
  virtual Logits eval_last(std::span<const TokenId> ids, size_t rows, int best) = 0;
  // Takes the memory that evaluations of up to `rows` tokens with eval_last need, so that they take none.
  virtual void reserve(size_t /*rows*/) {}
  // Tokens that may be appended at once and still get the bits that they would get one by one.
  virtual size_t batch_room() const { return capacity() - position(); }
  // Like eval, but hands out every position's logits in order: sink(context, position, logits [vocab]).
  virtual void eval_all(std::span<const TokenId> ids, LogitsSink sink, void* context) = 0;
  virtual size_t position() const = 0;                           // tokens evaluated so far
  virtual size_t capacity() const = 0;                           // tokens that fit
  virtual std::span<const TokenId> ids() const = 0;              // the tokens evaluated so far
  // Forgets all positions from this one on, and returns it; or forgets everything and returns 0, where layers with a window have
  // dropped what they would need to go on from there.
  virtual size_t rewind(size_t position) = 0;
  virtual Sequence* draft() { return nullptr; }                  // of the model that guesses for this one, where there is one

  // Snapshots: what comes after a restored one has the same bits as if all had been evaluated.
  virtual uint64_t tile_bytes() const = 0;                       // of 16 positions
  virtual uint64_t snapshot_bytes(size_t n) const = 0;           // of the first n positions; 0: they cannot be saved
  // The tiles of positions first .. n - 1: snapshot_bytes(n) less the tiles before. first: a multiple of 16.
  virtual void save(size_t first, size_t n, std::byte* to) const = 0;
  // Replaces what the sequence holds. Errors: Code::format, Code::request when it does not fit; nothing has changed then.
  virtual void restore(const StateSnapshot& snapshot) = 0;
  // Replaces what the sequence holds by the first n tokens of another one of the same model, without evaluating them: memory is
  // shared until one of the two writes to it. False: the other does not hold them any more; nothing has changed then.
  virtual bool share(const Sequence& /*other*/, size_t /*n*/) { return false; }
};

// One sequence's part of a joint evaluation.
struct SequenceWork {
  Sequence* sequence = nullptr;
  std::span<const TokenId> ids;        // to append
  Logits logits;                       // result: after the last of them (`rows`), valid until the sequence's next evaluation
  std::optional<Error> error;          // or what went wrong; the sequence is as it was before
  size_t rows = 1;                     // see Sequence::eval_last
  int best = 0;
};

class PrefixCache;
struct ModelFiles;

class Lm {
 public:
  // path: a packed file, a .gguf, a .safetensors beside its config.json, or a Hugging Face directory. Errors name the file and the
  // cause.
  static std::unique_ptr<Lm> load(const std::string& path, const LoadOptions& options);
  // The same from files that open_model(path) has opened.
  static std::unique_ptr<Lm> load(const std::string& path, const ModelFiles& files, const LoadOptions& options);
  virtual ~Lm() = default;

  // Makes the threads that evaluate, which would else be made at the first need: for hosts that enter a sandbox.
  virtual void warm_threads() {}
  // Room for `tokens` positions (0: as the options say). Fails with Code::memory, naming need and supply in bytes.
  virtual std::unique_ptr<Sequence> start(size_t tokens = 0) = 0;
  // Evaluates several sequences of this model in common passes: each gets the bits that it would get alone.
  virtual void eval(std::span<SequenceWork> work) = 0;
  virtual const Tokenizer& tokenizer() const = 0;                // Code::tokenizer when the model has none
  virtual const ChatTemplate& chat_template() = 0;               // Code::template_ when the model has none; parsed on first use
  virtual size_t vocab() const = 0;
  virtual size_t context_length() const = 0;
  virtual std::string_view architecture() const = 0;
  virtual std::string_view name() const = 0;                     // general.name, or the path's last part
  virtual uint64_t weight_bytes() const = 0;                     // bytes read for one token of a dense model
  // What snapshots depend on but for the weights' values: the format, the layers, the types and how activations are computed.
  virtual uint64_t state_fingerprint() const = 0;
  virtual std::span<const std::shared_ptr<const Mapping>> files() const = 0;   // that hold the weights
  virtual std::optional<uint64_t> weights_hash() const { return std::nullopt; }   // of all weights, where the file tells it
  virtual std::span<const StateSnapshot> prefixes() const { return {}; }       // that the file brings along
  virtual size_t max_drafts() const { return 0; }                // see LoadOptions
  virtual float draft_cost() const { return 0; }                 // of one guess, as a share of the time of a token
  virtual PrefixCache* prefix_cache() { return nullptr; }        // null: neither such prefixes nor a folder
  // The embedding of a text, of length one, as the file says that its states are pooled. Errors: Code::unsupported where it does not.
  virtual std::vector<float> embed(std::span<const TokenId> ids) = 0;

  // A coarse copy of the head as RowSearch wants it, for a packed file; nothing where it would serve no purpose. Evaluates a text, so
  // that it is made for what usually comes.
  virtual std::vector<std::byte> head_search() { return {}; }
  // Does what LoadOptions::copy_weights does step by step at once, for measuring and tests.
  virtual void copy_weights_now() {}
  // The checks that LoadOptions::defer_checks put off. Text may be encoded and decoded before, but its tokens would be wrong in an
  // altered file. Errors: Code::format.
  virtual void finish_checks() {}
  virtual Dtype kv_dtype() const { return Dtype::f32; }          // of keys and values, in sequences and snapshots
  // Fields that a packed file puts under those of every request: a JSON object, or "" (see with_defaults in request.h).
  virtual std::string_view default_fields() const { return {}; }
  virtual const PackFile* packed() const { return nullptr; }     // the file that it comes from, if it is a packed one
};

}  // namespace tealight
