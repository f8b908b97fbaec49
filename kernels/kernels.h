// The interface of the CPU kernels: one table of functions an instruction set, chosen once per process.
//
// Every table gives the same bits (the written order is in kernels/cpu/ref/*). No kernel allocates, throws, or looks at
// global state; buffers and their sizes come from the caller. Pointers to activations, outputs and scratch are 64-byte
// aligned; weights need no alignment. `[n, k]` is row-major with the given row stride.
#pragma once
#include "kernels/types.h"

namespace tealight::kernels {

// Quantized activations: T rows of K values as int8 with one scale for every 32 (block32) or 256 (block256) values and
// the block sums that kernels need. The layout inside is the kernels' own (kernels/cpu/act.h) and the same for every
// instruction set.
size_t act_bytes(Family family, int T, int K);
// Tokens lie in tiles of so many while they last: those from a multiple of it on, t, lie at act + act_bytes(family, t, K) as if alone.
constexpr int kActTile = 4;
// The values of one token's activations (T = 1) as they multiply: code * scale, rounded once. K floats.
void act_values(Family family, const void* act, int K, float* out);

// Scratch that one thread needs for a matmul of any type with rows of K values and T tokens.
size_t matmul_scratch_bytes(int K, int T);

// Attention of the query heads that share a K/V head, of one row or of some rows of one sequence, each over its positions lo..hi-1.
//   Tile j holds positions 16 j .. 16 j + 15: K as [d][16], V as [16][dv]; of type kv (f32 or f16). Of type q8_0 or q4_0 (d, dv multiples of 32) the codes come first, then the f16 scales: K codes [d][16] int8, or
//   [d/32][16][16] bytes whose low nibbles are dimensions 0..15 of 32 and whose high ones 16..31; scales [d/32][16]; V codes
//   [16][dv], or [16][dv/32][16] bytes likewise; scales [16][dv/32]. A value is float(code), or nibble - 8, times its scale, rounded
//   once to f32; from there on the order is that of f32.
// Queries are numbered row by row. A query's bits do not depend on those beside it, nor on how the three passes are cut:
// attention_scores over all tiles, then attention_weights over all queries, then attention_sum over all columns.
struct Attention {
  struct Row {
    int lo, hi;         // visible positions; lo < hi
  };
  const float* q;       // [rows][heads][d], rows `q_row` and heads `q_stride` floats apart
  size_t q_row, q_stride;
  const void* const* tiles;   // tile j holds positions 16 j .. 16 j + 15; those that no row sees may be null
  size_t k, v;          // bytes from a tile's begin to K and V of the head
  Dtype kv;
  int rows, heads, d, dv;
  const Row* seen;      // [rows]; neither bound falls from row to row
  float scale, softcap; // score = scale * dot(q, k), then softcap * tanh(score / softcap) where softcap > 0
  float* out;           // [rows][heads][dv]
  size_t out_row, out_stride;
  float* scores;        // attention_score_bytes: between the passes, shared by the threads
  float* work;          // attention_work_bytes: within one call
};
// Attention reads tiles seen[0].lo / 16 to (seen[rows - 1].hi - 1) / 16: so many.
size_t attention_score_bytes(int queries, int tiles);
size_t attention_work_bytes(int queries, int d, int dv);

struct Table {
  const char* isa;      // a word of isa_name

  // Quantizes T rows of x (ldx floats apart) into act. Returns false if a value is NaN or infinite.
  bool (*quantize)(Family family, const float* x, size_t ldx, int T, int K, void* act);

  // y[t * ldy + r] for r in [r0, r1) and all T tokens: integer dot products of weight rows with quantized activations.
  // w points at row 0, rows are row_bytes(dtype, K) apart. Null for types outside the two integer families.
  using MatmulInt = void (*)(const void* w, int K, const void* act, int T, float* y, size_t ldy, int r0, int r1, void* scratch);
  MatmulInt matmul_int[kDtypes];
  // The same bits from groups of 16 rows in the x16 layout (kernels/cpu/x16.h): w is 64-byte aligned and points at the first
  // group, groups are 16 * x16_row_bytes(dtype, K) apart, r0 is a multiple of 16.
  MatmulInt matmul_x16[kDtypes];

  // The same from f32 activations for every type that can be multiplied (weights are widened exactly to f32; one fma a
  // k in rising k from +0). w rows are w_stride bytes apart. Null for Family::none.
  using MatmulFloat = void (*)(const void* w, size_t w_stride, int K, const float* x, size_t ldx, int T, float* y, size_t ldy,
                               int r0, int r1, void* scratch);
  MatmulFloat matmul_float[kDtypes];

  // n elements (a multiple of the block) of any type with Family other than none, to f32, exactly as the format says.
  using Widen = void (*)(const void* src, float* dst, size_t n);
  Widen widen[kDtypes];
  // f32 to f16, round to nearest even; out of range becomes infinity.
  void (*to_f16)(const float* src, uint16_t* dst, size_t n);

  // out[i] = x[i] * (1 / sqrt(mean(x^2) + eps)) * (w ? w[i] + offset : 1). Sums: 16 lanes (i mod 16) and the fixed tree.
  void (*rms_norm)(const float* x, const float* w, float offset, float eps, float* out, int n);
  // out[i] = (x[i] - mean) / sqrt(var + eps) * (w ? w[i] : 1) + (b ? b[i] : 0); mean first, then the sum of squared distances.
  void (*layer_norm)(const float* x, const float* w, const float* b, float eps, float* out, int n);
  // Rotates one head in place: pairs (i, i + n/2) of the first n values (`neox`), or (2i, 2i + 1); cos, sin [n/2].
  void (*rope)(float* x, const float* cos, const float* sin, int n, bool neox);
  // x -> softmax(x) in place; max, exp(x - max), sum in 16 lanes and the fixed tree, times 1/sum.
  void (*softmax)(float* x, int n);
  // Three passes, each of which may be cut: tiles (see above), queries, columns (at multiples of 16).
  void (*attention_scores)(const Attention&, int first_tile, int end_tile);
  void (*attention_weights)(const Attention&, int first_query, int end_query);
  void (*attention_sum)(const Attention&, int first_column, int end_column);

  // Elementwise over n floats; out may be an input.
  void (*add)(const float* a, const float* b, float* out, size_t n);
  void (*mul)(const float* a, const float* b, float* out, size_t n);
  void (*scale)(const float* a, float s, float* out, size_t n);
  void (*fma_scalar)(const float* a, float s, const float* c, float* out, size_t n);  // fma(a[i], s, c[i])
  void (*silu_mul)(const float* gate, const float* up, float* out, size_t n);         // silu(gate) * up
  void (*gelu_tanh_mul)(const float* gate, const float* up, float* out, size_t n);    // up may be null: gelu alone
  void (*gelu_erf_mul)(const float* gate, const float* up, float* out, size_t n);     // up may be null: gelu alone
  void (*softcap)(const float* x, float cap, float* out, size_t n);                   // cap * tanh(x / cap)
  bool (*all_finite)(const float* x, size_t n);
};

enum class Isa : uint8_t { ref, avx2, avxvnni, avx512, amx, neon, i8mm };  // of one architecture, the better ones later
constexpr int kIsas = 7;
const char* isa_name(Isa isa);
bool isa_supported(Isa isa);          // by this CPU and this build
const Table& table(Isa isa);          // isa_supported(isa)
// The best supported set, or the one that the environment variable TEALIGHT_ISA names. *error (a literal) is set when that
// word is unknown or the CPU lacks it; then the answer is null.
const Table* choose(const char* forced, const char** error);

}  // namespace tealight::kernels
