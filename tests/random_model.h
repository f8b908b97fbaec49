// A language model of random weights, large enough that what is done for large ones is done for it.
#pragma once
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "src/io/gguf_writer.h"

namespace tealight {

// Writes a Llama of a few layers as GGUF: all matrices in `type` (of the 32 family), the head tied to the embedding.
inline void write_random_model(const std::string& path, Dtype type = Dtype::q8_0, uint64_t vocab = 16500, uint64_t model = 256, uint64_t layers = 6) {
  const uint64_t ff = 4 * model, kv = model / 2;
  std::mt19937 rng(7);
  std::vector<std::vector<uint8_t>> kept;
  GgufWriter w;
  w.set("general.architecture", "llama");
  w.set("general.name", "random");
  w.set("llama.block_count", uint32_t(layers));
  w.set("llama.context_length", uint32_t(4096));
  w.set("llama.embedding_length", uint32_t(model));
  w.set("llama.feed_forward_length", uint32_t(ff));
  w.set("llama.attention.head_count", uint32_t(4));
  w.set("llama.attention.head_count_kv", uint32_t(2));
  w.set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  w.set("tokenizer.ggml.model", "gpt2");
  std::vector<std::string> tokens;
  for (uint64_t i = 0; i < vocab; i++) tokens.push_back("t" + std::to_string(i));
  w.set("tokenizer.ggml.tokens", std::span<const std::string>(tokens));
  std::vector<int32_t> kinds(vocab, 1);
  w.set("tokenizer.ggml.token_type", std::span<const int32_t>(kinds));
  const std::vector<std::string> merges = {"t 0"};
  w.set("tokenizer.ggml.merges", std::span<const std::string>(merges));
  const auto matrix = [&](const std::string& name, uint64_t rows, uint64_t columns) {
    std::vector<uint8_t>& b = kept.emplace_back(row_bytes(type, rows * columns));
    for (uint8_t& v : b) v = uint8_t(rng() >> 24);
    for (size_t i = 0; i < b.size(); i += size_t(info(type).bytes)) {
      const uint16_t d = uint16_t(0x1000 + rng() % 0x400);     // a scale of about 0.0006
      std::memcpy(b.data() + i, &d, 2);
      if (type == Dtype::q4_1 || type == Dtype::q5_1) std::memcpy(b.data() + i + 2, &d, 2);
    }
    const uint64_t shape[] = {rows, columns};
    w.tensor(name, type, shape, b.data());
  };
  const auto ones = [&](const std::string& name) {
    const std::vector<float> one(model, 1.0f);
    std::vector<uint8_t>& b = kept.emplace_back(model * 4);
    std::memcpy(b.data(), one.data(), b.size());
    w.tensor(name, Dtype::f32, std::span(&model, 1), b.data());
  };
  kept.reserve(2 + layers * 9);
  matrix("token_embd.weight", vocab, model);
  ones("output_norm.weight");
  for (uint64_t l = 0; l < layers; l++) {
    const std::string p = "blk." + std::to_string(l) + ".";
    ones(p + "attn_norm.weight"), ones(p + "ffn_norm.weight");
    matrix(p + "attn_q.weight", model, model), matrix(p + "attn_k.weight", kv, model), matrix(p + "attn_v.weight", kv, model);
    matrix(p + "attn_output.weight", model, model);
    matrix(p + "ffn_gate.weight", ff, model), matrix(p + "ffn_up.weight", ff, model), matrix(p + "ffn_down.weight", model, ff);
  }
  w.write(path);
}

}  // namespace tealight
