#include "src/nn/decoder.h"

#include <algorithm>
#include <array>

#include "src/base/error.h"

namespace tealight::nn {
namespace {

struct Qkv {
  Tensor q, k, v;                                    // [n, heads, d], [n, kv_heads, d], [n, kv_heads, dv]
};

Qkv project(const SelfAttention& a, const NormSpec* norm, const Tensor& x) {
  const AttentionSpec& s = a.spec;
  const int64_t n = x.dim(0);
  if (a.grouped) {
    LinearSpec w = a.grouped.spec();
    Tensor y;
    linear_group(x, norm, {&w, 1}, {&y, 1});
    const int64_t group = s.heads / s.kv_heads;
    Tensor g = y.reshape({n, s.kv_heads, group + 2, s.d});
    return {g.slice(2, 0, group).contiguous().reshape({n, s.heads, s.d}), g.select(2, group).contiguous(), g.select(2, group + 1).contiguous()};
  }
  const std::array<LinearSpec, 3> ws = {a.q.spec(), a.k.spec(), a.v.spec()};
  std::array<Tensor, 3> ys;
  linear_group(x, norm, ws, ys);
  return {ys[0].reshape({n, s.heads, s.d}), ys[1].reshape({n, s.kv_heads, s.d}), ys[2].reshape({n, s.kv_heads, s.dv})};
}

Tensor head_norm(const Norm& norm, const Tensor& x, bool per_head) {
  if (norm.w && norm.w.rank() == 2) {                // one weight a head
    Norm bare = norm;
    bare.w = Tensor();
    return mul(bare(x), norm.w);
  }
  return per_head ? norm(x) : norm(x.reshape({x.dim(0), x.dim(1) * x.dim(2)})).reshape(x.shape());
}

// The attention's result before the output projection, [n, heads * dv].
Tensor attend(const SelfAttention& a, const NormSpec* norm, const Tensor& x, const Batch& b, int layer, bool neox, const Tensor& cos,
              const Tensor& sin) {
  auto [q, k, v] = project(a, norm, x);
  if (a.q_norm) q = head_norm(a.q_norm, q, a.norm_per_head);
  if (a.k_norm) k = head_norm(a.k_norm, k, a.norm_per_head);
  if (a.rope >= 0) {
    q = rope(std::move(q), cos, sin, neox);
    k = rope(std::move(k), cos, sin, neox);
  }
  return attention(a.spec, q, k, v, b.rows(layer, a.window));
}

// What goes into the down projection, [n, d_ff].
Tensor inner(const Mlp& m, const NormSpec* norm, const Tensor& x) {
  if (!m.gate) {
    LinearSpec w = m.up.spec();
    Tensor y;
    linear_group(x, norm, {&w, 1}, {&y, 1});
    return activate(m.act, y);
  }
  const std::array<LinearSpec, 2> ws = {m.gate.spec(), m.up.spec()};
  std::array<Tensor, 2> ys;
  linear_group(x, norm, ws, ys);
  return gated(m.act, ys[0], ys[1]);
}

// x + scale * post(projection of y), the end of both halves of a block.
Tensor close(const Tensor& x, const Linear& projection, const Tensor& y, const Norm& post, float residual_scale) {
  if (!post && residual_scale == 1) return linear_add(y, projection.spec(), x);
  Tensor z = linear(y, projection.spec());
  if (post) z = post(z);
  if (residual_scale != 1) z = scale(z, residual_scale);
  return add(x, z);
}

const NormSpec* pointer(const Norm& n, const NormSpec& spec) { return n ? &spec : nullptr; }

}  // namespace

Tensor forward(const DecoderBlock& k, const Tensor& x, const Batch& b, int layer, bool neox, const Tensor& cos, const Tensor& sin) {
  const NormSpec attn_norm = k.attn_norm.spec(), ffn_norm = k.ffn_norm.spec();
  Tensor a = attend(k.attn, pointer(k.attn_norm, attn_norm), x, b, layer, neox, cos, sin);
  Tensor y = close(x, k.attn.out, a, k.attn_post_norm, k.residual_scale);
  if (k.parallel) {
    const bool own = bool(k.ffn_norm);
    Tensor m = inner(k.mlp, own ? &ffn_norm : pointer(k.attn_norm, attn_norm), x);
    return close(y, k.mlp.down, m, k.ffn_post_norm, k.residual_scale);
  }
  if (k.moe) {
    Tensor m = forward(k.moe, k.ffn_norm ? k.ffn_norm(y) : y);
    if (k.ffn_post_norm) m = k.ffn_post_norm(m);
    return add(y, k.residual_scale != 1 ? scale(m, k.residual_scale) : m);
  }
  Tensor m = inner(k.mlp, pointer(k.ffn_norm, ffn_norm), y);
  return close(y, k.mlp.down, m, k.ffn_post_norm, k.residual_scale);
}

Tensor Decoder::hidden(const Batch& b, bool use_long, const LayerProbe& probe, const std::vector<bool>& left_out) const {
  if (left_out.empty()) b.prepare();
  Tensor x = embed(embedding, b.ids, embedding_scale);
  if (positions) {
    for (int32_t p : b.positions)
      if (p >= positions.dim(0)) fail(Code::request, "position ", p, " is beyond the ", positions.dim(0), " that the model has learned");
    x = add(x, embed(positions, b.positions));
  }
  if (embedding_norm) x = embedding_norm(x);
  constexpr size_t kRopes = 2;                       // a global and a local one at most
  std::array<Tensor, kRopes> cos, sin;
  TEALIGHT_CHECK(ropes.size() <= kRopes);
  for (size_t i = 0; i < ropes.size(); i++) ropes[i].table(x.device(), b.positions, use_long && ropes[i].has_long(), cos[i], sin[i]);
  if (probe.see) probe.see(probe.context, 0, x);
  for (size_t i = 0; i < blocks.size(); i++) {
    if (!left_out.empty() && left_out[i]) continue;
    const int r = blocks[i].attn.rope;
    const size_t table = size_t(std::max(r, 0));
    x = forward(blocks[i], x, b, int(i), r >= 0 && ropes[table].neox, cos[table], sin[table]);
    if (probe.see) probe.see(probe.context, int(i) + 1, x);
  }
  return x;
}

std::vector<bool> Decoder::repeating() const {
  std::vector<bool> repeats;
  uint64_t before = 0;
  for (const DecoderBlock& b : blocks) {
    uint64_t key = 1;                                // FNV-1a
    const auto mix = [&](int64_t v) { key = (key ^ uint64_t(v)) * 0x100000001b3; };
    each_weight(b, [&](const Tensor& w) {
      mix(w ? int64_t(info(w.dtype()).family) : -1);
      for (int i = 0; i < w.rank(); i++) mix(w.dim(i));
    });
    repeats.push_back(key == before);
    before = key;
  }
  return repeats;
}

Tensor Decoder::project(const Tensor& final_states) const {
  Tensor y = linear(final_states, head.spec());
  if (logit_scale != 1) y = scale(y, logit_scale);
  if (logit_softcap > 0) y = unary(Unary::softcap, y, logit_softcap);
  return y;
}

bool Decoder::has_long_rope() const {
  return std::any_of(ropes.begin(), ropes.end(), [](const Rope& r) { return r.has_long(); });
}

int Decoder::original_context() const {
  for (const Rope& r : ropes)
    if (r.has_long()) return r.original;
  return 0;
}

std::vector<StateMemory::LayerSpec> Decoder::state_layers() const {
  std::vector<StateMemory::LayerSpec> v;
  for (const DecoderBlock& b : blocks) v.push_back({b.attn.spec.kv_heads, b.attn.spec.d, b.attn.spec.dv, b.attn.window});
  return v;
}

}  // namespace tealight::nn
