// Rotary position embeddings (Su et al. 2021, arXiv 2104.09864) and the ways to stretch them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "src/tensor/tensor.h"

namespace tealight::nn {

// Frequencies of one kind of layer. Angles are computed in double and rounded once.
struct Rope {
  int rotated = 0;                       // how many values of a head turn (even)
  bool neox = true;                      // pairs (i, i + rotated/2); else (2i, 2i + 1)
  std::vector<double> inv_freq;          // [rotated / 2]
  std::vector<double> inv_freq_long;     // longrope: used when the sequence is longer than `original`
  int original = 0;
  float magnitude = 1;                   // multiplies cos and sin
  float magnitude_long = 1;

  // base^(-2i / rotated), scaled by nothing.
  static Rope plain(int rotated, double base, bool neox);
  void linear(double factor);            // positions divided by factor (Chen et al. 2023, arXiv 2306.15595)
  void divide(std::span<const float> factors);   // one divisor for every frequency, as GGUF's rope_freqs.weight has them
  // Llama 3.1: low frequencies divided by factor, with a smooth band between the two wave lengths.
  void llama3(double factor, double low, double high, double original_length);
  // YaRN (Peng et al. 2023, arXiv 2309.00071): interpolation below beta_slow turns, extrapolation above beta_fast.
  void yarn(double base, double factor, double original_length, double beta_fast, double beta_slow, bool truncate, double magnitude);

  bool has_long() const { return !inv_freq_long.empty(); }
  // cos and sin, each [n, rotated / 2]. use_long: the frequencies for sequences beyond `original`.
  void table(Backend& device, std::span<const int32_t> positions, bool use_long, Tensor& cos, Tensor& sin) const;
};

}  // namespace tealight::nn
