// Mixture of experts: the router's choice is made on the host, each expert sees the rows that chose it.
#include <algorithm>

#include "src/base/error.h"
#include "src/nn/decoder.h"

namespace tealight::nn {
namespace {

constexpr int kMaxTop = 32;

// One row's choice: the `top` most probable experts (the lower index wins a tie), in rising index, with their weights.
// `p` holds softmax probabilities.
void choose(const float* p, int experts, int top, bool normalize, float scale, int* chosen, float* weight) {
  int order[kMaxTop];
  for (int i = 0; i < top; i++) {
    int best = -1;
    for (int e = 0; e < experts; e++) {
      if (std::find(order, order + i, e) != order + i) continue;
      if (best < 0 || p[e] > p[best]) best = e;
    }
    order[i] = best;
  }
  float sum = 0;                                     // from the most probable down, as the reference adds them
  for (int i = 0; i < top; i++) sum += p[order[i]];
  std::sort(order, order + top);
  for (int i = 0; i < top; i++) {
    chosen[i] = order[i];
    weight[i] = (normalize ? p[order[i]] / sum : p[order[i]]) * scale;
  }
}

Tensor mlp(const Mlp& m, const Tensor& x) {
  const LinearSpec ws[2] = {m.gate ? m.gate.spec() : m.up.spec(), m.up.spec()};
  Tensor ys[2];
  const size_t n = m.gate ? 2 : 1;
  linear_group(x, nullptr, {ws, n}, {ys, n});
  return linear(m.gate ? gated(m.act, ys[0], ys[1]) : activate(m.act, ys[0]), m.down.spec());
}

}  // namespace

Tensor forward(const Moe& moe, const Tensor& x) {
  const int64_t n = x.dim(0), d = x.dim(1), experts = int64_t(moe.experts.size());
  TEALIGHT_CHECK(moe.top > 0 && moe.top <= kMaxTop && moe.top <= experts);
  Backend& device = x.device();
  Tensor probabilities = softmax(linear(x, moe.router.spec()));
  Tensor choice = Tensor::empty(device, {n, moe.top}, Dtype::i32), weights = Tensor::empty(device, {n, moe.top});
  auto* chosen = choice.data<int32_t>();
  float* w = weights.data();
  for (int64_t t = 0; t < n; t++)
    choose(probabilities.data() + t * experts, int(experts), moe.top, moe.normalize, moe.scale, chosen + t * moe.top, w + t * moe.top);

  // Every token adds its experts in rising index, whatever the batch: the same bits for one row as for many.
  Tensor out = Tensor::zeros(device, {n, d});
  Tensor rows = Tensor::empty(device, {n}, Dtype::i32), share = Tensor::empty(device, {n});
  for (int64_t e = 0; e < experts; e++) {
    int64_t count = 0;
    for (int64_t t = 0; t < n; t++)
      for (int i = 0; i < moe.top; i++)
        if (chosen[t * moe.top + i] == e) {
          rows.data<int32_t>()[count] = int32_t(t);
          share.data()[count++] = w[t * moe.top + i];
        }
    if (!count) continue;
    Tensor in = x;
    if (n > 1) {
      in = Tensor::empty(device, {count, d});
      for (int64_t i = 0; i < count; i++) device.copy(x.select(0, rows.data<int32_t>()[i]), in.select(0, i));
    }
    Tensor y = mlp(moe.experts[size_t(e)], in);
    for (int64_t i = 0; i < count; i++) device.add_scaled(y.select(0, i), share.data()[i], out.select(0, rows.data<int32_t>()[i]));
  }
  if (moe.shared.up) {
    Tensor y = mlp(moe.shared, x);
    if (moe.shared_gate) y = mul(y, unary(Unary::sigmoid, linear(x, moe.shared_gate.spec())));
    out = add(out, y);
  }
  return out;
}

}  // namespace tealight::nn
