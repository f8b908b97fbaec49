#include "src/nn/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/tensor/backend.h"

namespace tealight::nn {

Rope Rope::plain(int rotated, double base, bool neox) {
  Rope r;
  r.rotated = rotated;
  r.neox = neox;
  for (int i = 0; i < rotated / 2; i++) r.inv_freq.push_back(std::pow(base, -2.0 * i / rotated));
  return r;
}

void Rope::linear(double factor) {
  for (double& f : inv_freq) f /= factor;
}

void Rope::divide(std::span<const float> factors) {
  for (size_t i = 0; i < inv_freq.size() && i < factors.size(); i++) inv_freq[i] /= double(factors[i]);
}

void Rope::llama3(double factor, double low, double high, double original_length) {
  const double low_wave = original_length / low, high_wave = original_length / high;
  for (double& f : inv_freq) {
    const double wave = 2 * std::numbers::pi / f;
    if (wave > low_wave) f /= factor;
    else if (wave >= high_wave) {
      const double smooth = (original_length / wave - low) / (high - low);
      f = (1 - smooth) * f / factor + smooth * f;
    }
  }
}

void Rope::yarn(double base, double factor, double original_length, double beta_fast, double beta_slow, bool truncate, double m) {
  auto dim_of = [&](double turns) {
    return rotated * std::log(original_length / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  double low = dim_of(beta_fast), high = dim_of(beta_slow);
  if (truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, double(rotated - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inv_freq.size(); i++) {
    const double ramp = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    inv_freq[i] = inv_freq[i] / factor * ramp + inv_freq[i] * (1 - ramp);
  }
  magnitude = float(m);
}

void Rope::table(Backend& device, std::span<const int32_t> positions, bool use_long, Tensor& cos, Tensor& sin) const {
  const int64_t n = int64_t(positions.size()), half = rotated / 2;
  cos = Tensor::empty(device, {n, half});
  sin = Tensor::empty(device, {n, half});
  const std::vector<double>& freq = use_long ? inv_freq_long : inv_freq;
  const double m = double(use_long ? magnitude_long : magnitude);
  // Rows are made on the host in small pieces, so that a device with memory of its own gets them too.
  float c[512], s[512];
  for (int64_t t = 0; t < n; t++)
    for (int64_t i = 0; i < half; i += 512) {
      const int64_t count = std::min<int64_t>(512, half - i);
      for (int64_t j = 0; j < count; j++) {
        const double angle = double(positions[size_t(t)]) * freq[size_t(i + j)];
        c[j] = float(std::cos(angle) * m);
        s[j] = float(std::sin(angle) * m);
      }
      device.upload(c, cos.data() + t * half + i, size_t(count) * sizeof(float));
      device.upload(s, sin.data() + t * half + i, size_t(count) * sizeof(float));
    }
}

}  // namespace tealight::nn
