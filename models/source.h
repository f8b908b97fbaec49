// What an architecture is filled from: the configuration and the weights of a GGUF file or a Hugging Face checkpoint, read
// by pairs of names, so that one definition of a model serves both. Nothing here copies a matrix.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "src/io/gguf.h"
#include "src/io/hf.h"
#include "src/nn/decoder.h"

namespace tealight::models {

// The two names of a weight, without ".weight" or ".bias".
struct Name {
  std::string gguf, hf;
};

// The numbers that every decoder has, checked: all positive, heads a multiple of kv_heads, sizes within sane limits.
struct Dims {
  int64_t model = 0, layers = 0, heads = 0, kv_heads = 0, head = 0, ff = 0, vocab = 0, context = 0;
};

class Source {
 public:
  Source(std::shared_ptr<const Gguf> gguf, Backend& device);
  Source(std::shared_ptr<const HfCheckpoint> hf, Backend& device);

  bool gguf() const { return gguf_ != nullptr; }
  std::string_view architecture() const { return architecture_; }   // general.architecture, or model_type
  Backend& device() const { return device_; }

  // Configuration values. `g` is the GGUF key after "ARCH.", `h` the Hugging Face key; an empty one means that the format
  // does not have the value. Without a default a missing value is an error that names the key; null counts as missing.
  int64_t integer(std::string_view g, std::string_view h) const;
  int64_t integer(std::string_view g, std::string_view h, int64_t otherwise) const;
  double number(std::string_view g, std::string_view h) const;
  double number(std::string_view g, std::string_view h, double otherwise) const;
  bool boolean(std::string_view g, std::string_view h, bool otherwise) const;
  Json config() const { return config_; }                            // Hugging Face; missing for GGUF

  // `otherwise`: what a config that lacks a number means by it (0: the number must be there).
  Dims dims(const Dims& otherwise = {}) const;

  // The names of a layer's weight: "blk.L." + g and layers() + "L." + h.
  Name at(int64_t layer, std::string_view g, std::string_view h) const;
  std::string layers = "model.layers.";                              // what Hugging Face names begin with

  // Weights. Shapes are checked: Code::model, naming the tensor, its shape and the one expected.
  bool has(const Name& n, std::string_view suffix = ".weight") const;
  Tensor matrix(const Name& n, int64_t rows, int64_t cols) const;
  Tensor experts(const Name& n, int64_t count, int64_t rows, int64_t cols) const;   // [count, rows, cols]
  Tensor vector(const Name& n, std::string_view suffix, int64_t size) const;        // converted to f32
  nn::Linear linear(const Name& n, int64_t out, int64_t in) const;   // with its bias where the file has one
  nn::Norm rms_norm(const Name& n, int64_t size, double eps, float offset = 0) const;
  nn::Norm layer_norm(const Name& n, int64_t size, double eps) const;                // bias optional
  // A layer that Hugging Face stores as [in, out] (GPT-2's Conv1D) and GGUF as [out, in].
  nn::Linear linear_transposed(const Name& n, int64_t out, int64_t in) const;
  // Rows begin..end of a linear layer (matrix and bias): a view.
  static nn::Linear rows(const nn::Linear& l, int64_t begin, int64_t end);

  // The rotation that the file describes for its (global) layers: base and scaling. `rotated` values of a head turn.
  nn::Rope rope(int64_t rotated, int64_t head, bool neox, double default_base = 10000) const;
  double rope_base(double otherwise = 10000) const;                 // unscaled
  // How many values of a head turn: a stated count, or a stated part of the head, or `part` of it.
  int64_t rotated(int64_t head, double part = 1) const;
  // Hugging Face's parameters of one kind of layer ("full_attention", "sliding_attention"), or of all layers ("").
  Json rope_parameters(std::string_view layer_type) const;

  // The window of one layer: `size`, or 0 where the layer sees everything. layer_types says which; else every n-th layer sees
  // everything, n being the file's sliding_window_pattern or `pattern` (0: none does).
  int window(int64_t layer, int64_t size, int64_t pattern) const;

  Activation activation(std::string_view default_name) const;        // hidden_act and its like; GGUF files have the default

  // The embedding, final norm and output head in the usual names; a missing head is the embedding (tied).
  void embedding_and_head(nn::Decoder& d, const Dims& dims, std::string_view hf_embedding, std::string_view hf_head) const;

 private:
  const WeightView* find(const Name& n, std::string_view suffix) const;
  const WeightView& need(const Name& n, std::string_view suffix) const;
  Tensor as_tensor(const WeightView& v) const;
  std::string described(const Name& n, std::string_view suffix) const;
  const WeightSet& weights() const;
  Json lookup(std::string_view h) const;
  std::string key(std::string_view g) const;
  void scale_rope(nn::Rope& r, double base, Json parameters) const;
  void scale_rope_gguf(nn::Rope& r, double base) const;

  std::shared_ptr<const Gguf> gguf_;
  std::shared_ptr<const HfCheckpoint> hf_;
  Backend& device_;
  Json config_;
  std::string architecture_;
};

// The standard parts, for the architectures that have them in the usual names.
// q_proj, k_proj, v_proj and the output projection, with optional biases, turned by the decoder's first rope. GGUF files may
// have the first three as one matrix.
nn::SelfAttention self_attention(const Source& s, const Dims& d, int64_t layer, std::string_view hf_out = "self_attn.o_proj");
// The same from one matrix: all queries, all keys, all values, or (grouped) group by group as SelfAttention::grouped.
nn::SelfAttention fused_attention(const Dims& d, const nn::Linear& qkv, bool grouped, nn::Linear out);
// Rows of a fused q, k, v matrix.
inline int64_t qkv_rows(const Dims& d) { return (d.heads + 2 * d.kv_heads) * d.head; }
// gate_proj, up_proj, down_proj.
nn::Mlp gated_mlp(const Source& s, const Dims& d, int64_t layer, Activation act);
// The gate's rows and then the up projection's in one matrix, down_proj.
nn::Mlp fused_mlp(const Source& s, const Dims& d, int64_t layer, Activation act);
// Two layers without a gate.
nn::Mlp plain_mlp(const Source& s, const Dims& d, int64_t layer, Activation act, std::string_view hf_up, std::string_view hf_down);

// One architecture: how GGUF files and configs call it, and what fills a Decoder from a source.
struct Architecture {
  const char* gguf;             // general.architecture, or "" if GGUF has none
  const char* model_type;       // config.json's model_type, or ""
  nn::Decoder (*load)(const Source&);
};
// Null when nobody here knows it.
const Architecture* find_architecture(const Source& s);
std::string known_architectures();

}  // namespace tealight::models
