// The layers of decoder-only language models, and the model that they make. An architecture is a value of these structs
// (models/ fills them from a file); the forward pass is here, once.
#pragma once
#include <cstdint>
#include <vector>

#include "src/nn/rope.h"
#include "src/nn/state.h"
#include "src/tensor/ops.h"
#include "src/tensor/row_search.h"

namespace tealight::nn {

struct Linear {
  Tensor w;                                          // [out, in]
  Tensor b;                                          // [out], or undefined
  explicit operator bool() const { return bool(w); }
  LinearSpec spec() const { return {&w, b ? &b : nullptr}; }
  void each(auto&& f) const {
    f("weight", w);
    if (b) f("bias", b);
  }
};

struct Norm {
  Tensor w, b;                                       // [d]; either may be undefined
  float eps = 1e-5f;
  float offset = 0;                                  // added to w (Gemma's checkpoints store w - 1)
  bool layer = false;                                // layer norm instead of RMS norm
  bool on = false;                                   // absent otherwise
  explicit operator bool() const { return on; }
  NormSpec spec() const { return {w ? &w : nullptr, b ? &b : nullptr, eps, offset, layer}; }
  Tensor operator()(const Tensor& x) const { return norm(x, spec()); }
  void each(auto&& f) const {
    if (w) f("weight", w);
    if (b) f("bias", b);
  }
};

struct SelfAttention {
  AttentionSpec spec;
  int window = 0;                                    // 0: all positions before
  int rope = -1;                                     // index into Decoder::ropes; -1: none
  Linear q, k, v;                                    // [heads * d, model] ...
  // Or all three in one matrix whose rows go group by group: for each K/V head its query heads, its key, its value.
  Linear grouped;
  Linear out;
  Norm q_norm, k_norm;                               // before the rotation; a weight [heads, d] has a row for each head
  bool norm_per_head = true;                         // over d, else over all heads together
  void each(auto&& f) const {
    if (q) f("q", q), f("k", k), f("v", v);
    if (grouped) f("qkv", grouped);
    f("out", out);
    if (q_norm) f("q_norm", q_norm), f("k_norm", k_norm);
  }
};

struct Mlp {
  Linear gate;                                       // undefined: act(up(x)) instead of act(gate(x)) * up(x)
  Linear up, down;
  Activation act = Activation::silu;
  void each(auto&& f) const {
    if (gate) f("gate", gate);
    if (up) f("up", up), f("down", down);
  }
};

// A router and its experts (Shazeer et al. 2017, arXiv 1701.06538), with an optional shared expert.
struct Moe {
  Linear router;                                     // [experts, model]
  std::vector<Mlp> experts;
  int top = 0;                                       // experts of one token
  bool normalize = true;                             // the chosen probabilities are divided by their sum
  float scale = 1;
  Mlp shared;                                        // undefined up: none
  Linear shared_gate;                                // [1, model]: sigmoid of it multiplies the shared expert
  explicit operator bool() const { return bool(router); }
  void each(auto&& f) const {
    f("router", router);
    for (const Mlp& e : experts) f("expert", e);
    f("shared", shared);
    if (shared_gate) f("shared_gate", shared_gate);
  }
};

struct DecoderBlock {
  Norm attn_norm, attn_post_norm;                    // before attention; after it, before the residual
  SelfAttention attn;
  Norm ffn_norm, ffn_post_norm;
  Mlp mlp;
  Moe moe;                                           // instead of mlp where its router is defined
  bool parallel = false;                             // y = x + attention(attn_norm(x)) + mlp(ffn_norm(x)); without a ffn_norm
                                                     // both read attn_norm(x)
  float residual_scale = 1;
  void each(auto&& f) const {
    f("attn_norm", attn_norm), f("attn", attn), f("attn_post_norm", attn_post_norm), f("ffn_norm", ffn_norm);
    if (moe) f("moe", moe);
    else f("mlp", mlp);
    f("ffn_post_norm", ffn_post_norm);
  }
};

// Sees the input of the first layer (layer 0) and the output of layer n (layer n + 1).
struct LayerProbe {
  void (*see)(void* context, int layer, const Tensor& hidden) = nullptr;
  void* context = nullptr;
};

struct Decoder {
  Tensor embedding;                                  // [vocab, model]
  float embedding_scale = 1;
  Tensor positions;                                  // [context, model] learned positions, or undefined
  Norm embedding_norm;
  std::vector<Rope> ropes;
  std::vector<DecoderBlock> blocks;
  Norm final_norm;
  Linear head;                                       // [vocab, model]; a view of the embedding where they are tied
  float logit_scale = 1, logit_softcap = 0;
  int context = 0;                                   // positions that the model was made for
  int64_t vocab() const { return head.w.dim(0); }

  // Hidden states [n, model] after the last block, before the final norm. use_long: see Rope. left_out: to
  // see what memory a pass takes: for each block whether it is left out, and the states stay as they are; empty: a pass.
  Tensor hidden(const Batch& b, bool use_long, const LayerProbe& probe = {}, const std::vector<bool>& left_out = {}) const;
  // For each block: its weights have the types and shapes of those of the block before.
  std::vector<bool> repeating() const;
  // Some rows of hidden states after the final norm; the logits [rows, vocab] of such, and of hidden states.
  Tensor final_states(const Tensor& hidden) const { return final_norm ? final_norm(hidden) : hidden; }
  Tensor project(const Tensor& final_states) const;
  Tensor logits(const Tensor& hidden) const { return project(final_states(hidden)); }
  // May the best logits be found by RowSearch? Nothing must come after the product that could make equals of what differs.
  bool searchable() const { return RowSearch::bytes_for(head.w) > 0 && !head.b && logit_scale == 1 && logit_softcap == 0; }
  bool has_long_rope() const;
  int original_context() const;                      // of the ropes that have a long form; 0: none
  std::vector<StateMemory::LayerSpec> state_layers() const;
  void each(auto&& f) const {
    f("embedding", embedding);
    if (positions) f("positions", positions);
    f("embedding_norm", embedding_norm);
    for (const DecoderBlock& b : blocks) f("block", b);
    f("final_norm", final_norm), f("head", head);
  }
};

// One block on its own: x [n, model] -> [n, model]. cos, sin: the tables of its rope (unused without one).
Tensor forward(const DecoderBlock& block, const Tensor& x, const Batch& b, int layer, bool neox, const Tensor& cos, const Tensor& sin);
Tensor forward(const Moe& moe, const Tensor& x);

// Calls f(tensor) for every weight below a module.
template <class M>
void each_weight(const M& m, auto&& f) {
  if constexpr (std::is_same_v<M, Tensor>) f(m);
  else m.each([&](const char*, const auto& child) { each_weight(child, f); });
}

}  // namespace tealight::nn
