// Integer rows times quantized activations with the dot product of NEON; the written order is in quant/ref.cpp.
//   few tokens   rows as they lie, 8 side by side: inside a row lanes are k; integer sums are folded so that lanes are rows
//   else         16 rows at a time are unpacked into a panel and multiplied with tiles of tokens
// Weights and activations are both signed bytes, so nothing overflows and no bias is needed.
// Include after vec/neon.h; TL_I8MM says that there are products of 2 x 8 by 8 x 2 matrices.
#pragma once
#include "kernels/cpu/act.h"
#include "kernels/cpu/quant/panel.h"

namespace tealight::kernels {
namespace {

inline int8x16_t word(const void* p) {
  int32_t v;
  memcpy(&v, p, 4);
  return vreinterpretq_s8_s32(vdupq_n_s32(v));
}
// The f16 fields of 4 rows.
inline float32x4_t halves4(const uint8_t* const* row, size_t at) {
  const uint16_t h[4] = {load_u16(row[0] + at), load_u16(row[1] + at), load_u16(row[2] + at), load_u16(row[3] + at)};
  return load_f16x4(h);
}
inline int32x4_t dot32(int8x16x2_t code, int8x16_t x0, int8x16_t x1) {
  return vdotq_s32(vdotq_s32(vdupq_n_s32(0), code.val[0], x0), code.val[1], x1);
}
// Lane r = sum of the lanes of v[r].
inline int32x4_t sum4(const int32x4_t* v) { return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3])); }
// Four sums that together are the sum of a[i] * b[i], n = 8 or 16.
template <int n>
inline int32x4_t products16(const int16_t* a, const int16_t* b) {
  int32x4_t s = vdupq_n_s32(0);
  TL_UNROLL for (int i = 0; i < n; i += 4) s = vmlal_s16(s, vld1_s16(a + i), vld1_s16(b + i));
  return s;
}

// ---- few tokens ----

constexpr int kAhead = 512;  // bytes of prefetch along a row

// Eight rows `stride` bytes apart times one token.
template <class Type>
[[gnu::noinline]] void rows8(const uint8_t* w, size_t stride, int blocks, const ActTile& a, float* out) {
  constexpr int B = Type::kBlock, kSubs = B / Type::kSub;
  const uint8_t* row[8];
  for (int i = 0; i < 8; i++) row[i] = w + size_t(i) * stride;
  float32x4_t acc[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
  for (int b = 0; b < blocks; b++) {
    const int8_t* q = a.q + b * B;
    TL_UNROLL for (int g = 0; g < 2; g++) {
      const uint8_t* const* four = row + g * 4;
      int32x4_t v[4], m[4];
      TL_UNROLL for (int i = 0; i < 4; i++) {
        for (int l = 0; l < Type::kBytes; l += 64) __builtin_prefetch(four[i] + l + kAhead);
        if constexpr (B == 32) {
          v[i] = dot32(Type::codes32(four[i], 0), vld1q_s8(q), vld1q_s8(q + 16));
        } else {
          const int16_t* sums = Type::kSub == 16 ? a.sum16 + b * 16 : a.sum32 + b * 8;
          int16_t sc[16], mn[16];
          Type::scales(four[i], sc, mn);
          v[i] = Type::kOffset == 0 ? vdupq_n_s32(0) : vmulq_n_s32(products16<kSubs>(sc, sums), -Type::kOffset);
          TL_UNROLL for (int j = 0; j < 8; j++) {
            const int8x16x2_t code = Type::codes32(four[i], j);
            const int8x16_t x0 = vld1q_s8(q + j * 32), x1 = vld1q_s8(q + j * 32 + 16);
            if constexpr (Type::kSub == 32) {
              v[i] = vmlaq_n_s32(v[i], dot32(code, x0, x1), sc[j]);
            } else {
              v[i] = vmlaq_n_s32(v[i], vdotq_s32(vdupq_n_s32(0), code.val[0], x0), sc[2 * j]);
              v[i] = vmlaq_n_s32(v[i], vdotq_s32(vdupq_n_s32(0), code.val[1], x1), sc[2 * j + 1]);
            }
          }
          if constexpr (Type::kMinAt >= 0) m[i] = products16<kSubs>(mn, sums);
        }
      }
      int32x4_t I = sum4(v);
      if constexpr (B == 32 && Type::kOffset != 0) I = vsubq_s32(I, vdupq_n_s32(a.sum[b] * Type::kOffset));
      acc[g] = vfmaq_f32(acc[g], vmulq_n_f32(halves4(four, Type::kScaleAt), a.dx[b]), vcvtq_f32_s32(I));
      if constexpr (Type::kMinAt >= 0) {
        const float32x4_t least = halves4(four, Type::kMinAt);
        if constexpr (B == 32) acc[g] = vfmaq_n_f32(acc[g], least, a.s[b]);
        else acc[g] = vfmsq_f32(acc[g], vmulq_n_f32(least, a.dx[b]), vcvtq_f32_s32(sum4(m)));
      }
    }
    for (int i = 0; i < 8; i++) row[i] += Type::kBytes;
  }
  vst1q_f32(out, acc[0]);
  vst1q_f32(out + 4, acc[1]);
}

template <class Type>
void few_tokens(const void* w, int K, const void* act, int T, float* y, size_t ldy, int r0, int r1) {
  constexpr Family family = Type::kBlock == 32 ? Family::block32 : Family::block256;
  const int blocks = K / Type::kBlock;
  const size_t stride = size_t(blocks) * Type::kBytes;
  const auto rows = [&](int r, size_t step, int n) {
    for (int t = 0; t < T; t++) {
      float tmp[8];
      rows8<Type>(static_cast<const uint8_t*>(w) + size_t(r) * stride, step, blocks, act_tile(family, act, K, t, 1), tmp);
      memcpy(y + size_t(t) * ldy + r, tmp, size_t(n) * 4);
    }
  };
  int r = r0;
  for (; r + 8 <= r1; r += 8) rows(r, stride, 8);
  if (r < r1 && r1 - r0 >= 8) rows(r1 - 8, stride, 8);       // the last 8 again, some computed twice
  else for (; r < r1; r++) rows(r, 0, 1);                    // fewer than 8: the same row in every lane
}

// ---- panels ----

// Blocks b0 .. b0 + blocks - 1 of rows r .. r + 15 (rows beyond `last` repeat it).
template <class Type>
[[gnu::noinline]] void fill_panel(const void* w, size_t stride, int r, int last, int b0, int blocks, const Panel& p) {
  constexpr int B = Type::kBlock, kSubs = B / Type::kSub;
  const int8x16_t offset = vdupq_n_s8(Type::kOffset);
  for (int g = 0; g < 16; g += 4) {
    const uint8_t* row[4];
    for (int i = 0; i < 4; i++)
      row[i] = static_cast<const uint8_t*>(w) + size_t(min_int(r + g + i, last)) * stride + size_t(b0) * Type::kBytes;
    for (int b = 0; b < blocks; b++) {
      TL_UNROLL for (int j = 0; j < B / 32; j++) {
        int8x16x2_t code[4];
        TL_UNROLL for (int i = 0; i < 4; i++) code[i] = Type::codes32(row[i], j);
        TL_UNROLL for (int h = 0; h < 2; h++) {
          int32x4_t v[4];
          TL_UNROLL for (int i = 0; i < 4; i++)
            v[i] = vreinterpretq_s32_s8(Type::kOffset ? vsubq_s8(code[i].val[h], offset) : code[i].val[h]);
          transpose4(v);
          uint8_t* to = p.code + size_t(b * B + j * 32 + h * 16) * 16 + g * 4;
          TL_UNROLL for (int i = 0; i < 4; i++) vst1q_u8(to + i * 64, vreinterpretq_u8_s32(v[i]));
        }
      }
      vst1q_f32(p.d + b * 16 + g, halves4(row, Type::kScaleAt));
      if constexpr (Type::kMinAt >= 0) vst1q_f32(p.m + b * 16 + g, halves4(row, Type::kMinAt));
      for (int i = 0; i < 4; i++) {
        if constexpr (B == 256) {
          int16_t sc[16], mn[16];
          Type::scales(row[i], sc, mn);
          for (int j = 0; j < kSubs; j++) p.sc[(b * kSubs + j) * 16 + g + i] = sc[j];
          if constexpr (Type::kMinAt >= 0)
            for (int j = 0; j < kSubs; j++) p.mn[(b * kSubs + j) * 16 + g + i] = mn[j];
        }
        row[i] += Type::kBytes;
        for (int l = 0; l < Type::kBytes; l += 64) __builtin_prefetch(row[i] + l + kAhead);
      }
    }
  }
}

// s[t][h] = sum of the products of `words` words of a panel's rows 4 h .. 4 h + 3 with those of a tile's token t.
template <int T, int words>
inline void products(const uint8_t* code, const int8_t* q, int32x4_t (*s)[2]) {
#if TL_I8MM
  if constexpr (T == kTile) {  // pairs of rows by pairs of tokens
    int32x4_t m[2][4];
    TL_UNROLL for (int i = 0; i < 8; i++) m[i / 4][i % 4] = vdupq_n_s32(0);
    TL_UNROLL for (int i = 0; i < words; i += 2) {
      const int32x4_t x0 = load_s32x4(q + i * 16), x1 = load_s32x4(q + i * 16 + 16);
      const int8x16_t x[2] = {vreinterpretq_s8_s32(vzip1q_s32(x0, x1)), vreinterpretq_s8_s32(vzip2q_s32(x0, x1))};
      TL_UNROLL for (int h = 0; h < 2; h++) {
        const int32x4_t v0 = load_s32x4(code + i * 64 + h * 16), v1 = load_s32x4(code + i * 64 + 64 + h * 16);
        const int8x16_t low = vreinterpretq_s8_s32(vzip1q_s32(v0, v1)), high = vreinterpretq_s8_s32(vzip2q_s32(v0, v1));
        TL_UNROLL for (int t = 0; t < 2; t++) {
          m[t][2 * h] = vmmlaq_s32(m[t][2 * h], low, x[t]);
          m[t][2 * h + 1] = vmmlaq_s32(m[t][2 * h + 1], high, x[t]);
        }
      }
    }
    TL_UNROLL for (int t = 0; t < 4; t++) TL_UNROLL for (int h = 0; h < 2; h++) {
      const int32x4_t low = m[t / 2][2 * h], high = m[t / 2][2 * h + 1];
      s[t][h] = t % 2 ? vuzp2q_s32(low, high) : vuzp1q_s32(low, high);
    }
    return;
  }
#endif
  TL_UNROLL for (int t = 0; t < T; t++) s[t][0] = s[t][1] = vdupq_n_s32(0);
  TL_UNROLL for (int i = 0; i < words; i++) {
    const int8x16_t v[2] = {load_s8(code + i * 64), load_s8(code + i * 64 + 16)};
    if constexpr (T == kTile) {
      const int8x16_t x = vld1q_s8(q + i * 16);
      TL_UNROLL for (int h = 0; h < 2; h++) {
        s[0][h] = vdotq_laneq_s32(s[0][h], v[h], x, 0);
        s[1][h] = vdotq_laneq_s32(s[1][h], v[h], x, 1);
        s[2][h] = vdotq_laneq_s32(s[2][h], v[h], x, 2);
        s[3][h] = vdotq_laneq_s32(s[3][h], v[h], x, 3);
      }
    } else {
      const int8x16_t x = word(q + i * 4);
      TL_UNROLL for (int h = 0; h < 2; h++) s[0][h] = vdotq_s32(s[0][h], v[h], x);
    }
  }
}

// Eight rows of a panel, from row r8, times a tile of T tokens.
template <class Type, int T>
[[gnu::noinline]] void panel_tile(const Panel& p, int r8, int blocks, const ActTile& a, float* y, size_t ldy, bool first) {
  constexpr int H = 2, B = Type::kBlock, kSubs = B / Type::kSub;
  float32x4_t acc[T][H];
  TL_UNROLL for (int t = 0; t < T; t++) TL_UNROLL for (int h = 0; h < H; h++)
    acc[t][h] = first ? vdupq_n_f32(0) : vld1q_f32(y + size_t(t) * ldy + h * 4);
  const uint8_t* code = p.code + r8 * 4;
  const int8_t* q = a.q;
  for (int b = 0; b < blocks; b++) {
    int32x4_t S[T][H];
    if constexpr (B == 256)
      TL_UNROLL for (int t = 0; t < T; t++) TL_UNROLL for (int h = 0; h < H; h++) S[t][h] = vdupq_n_s32(0);
    for (int j = 0; j < kSubs; j++) {
      int32x4_t s[T][H];
      products<T, Type::kSub / 4>(code, q, s);
      code += Type::kSub * 16;
      q += Type::kSub * T;
      TL_UNROLL for (int h = 0; h < H; h++) {
        int32x4_t k;
        if constexpr (B == 256) k = vmovl_s16(vld1_s16(p.sc + (b * kSubs + j) * 16 + r8 + h * 4));
        TL_UNROLL for (int t = 0; t < T; t++) S[t][h] = B == 32 ? s[t][h] : vmlaq_s32(S[t][h], s[t][h], k);
      }
    }
    TL_UNROLL for (int h = 0; h < H; h++) {
      const float32x4_t d = vld1q_f32(p.d + b * 16 + r8 + h * 4);
      float32x4_t least;
      if constexpr (Type::kMin) least = vld1q_f32(p.m + b * 16 + r8 + h * 4);
      TL_UNROLL for (int t = 0; t < T; t++) {
        const float dx = a.dx[b * T + t];
        acc[t][h] = vfmaq_f32(acc[t][h], vmulq_n_f32(d, dx), vcvtq_f32_s32(S[t][h]));
        if constexpr (Type::kMin && B == 32) acc[t][h] = vfmaq_n_f32(acc[t][h], least, a.s[b * T + t]);
        if constexpr (Type::kMin && B == 256) {
          int32x4_t M = vdupq_n_s32(0);
          const int16_t* sums = Type::kSub == 16 ? a.sum16 : a.sum32;
          TL_UNROLL for (int j = 0; j < kSubs; j++) {
            const int16x4_t mn = vld1_s16(p.mn + (b * kSubs + j) * 16 + r8 + h * 4);
            M = vmlal_n_s16(M, mn, sums[((b * kSubs + j) / 2 * T + t) * 2 + j % 2]);
          }
          acc[t][h] = vfmsq_f32(acc[t][h], vmulq_n_f32(least, dx), vcvtq_f32_s32(M));
        }
      }
    }
  }
  TL_UNROLL for (int t = 0; t < T; t++) TL_UNROLL for (int h = 0; h < H; h++) vst1q_f32(y + size_t(t) * ldy + h * 4, acc[t][h]);
}

// A tile's part from block b on.
template <class Type>
inline ActTile tile_from(const void* act, int K, int token, int n, int b) {
  constexpr int B = Type::kBlock;
  ActTile a = act_tile(B == 32 ? Family::block32 : Family::block256, act, K, token, n);
  a.q += size_t(b) * B * size_t(n);
  a.dx += b * n;
  if (B == 32) a.s += b * n, a.sum += b * n;
  else a.sum16 += b * 16 * n, a.sum32 += b * 8 * n;
  return a;
}

// A panel times tokens t0..t1-1 of T.
template <class Type>
void panel_tokens(const Panel& p, int blocks, const void* act, int K, int b, int t0, int t1, int T, float* y, size_t ldy, int rows,
                  bool first) {
  float tmp[kTile * 16];
  for (int t = t0; t < t1;) {
    const int n = T - t >= kTile ? kTile : 1;
    const ActTile a = tile_from<Type>(act, K, t, n, b);
    float* out = y + size_t(t) * ldy;
    size_t ld = ldy;
    if (rows < 16) {
      for (int i = 0; i < n; i++) memcpy(tmp + i * 16, out + size_t(i) * ldy, first ? 0 : size_t(rows) * 4);
      out = tmp, ld = 16;
    }
    for (int r8 = 0; r8 < 16; r8 += 8) {
      if (n == kTile) panel_tile<Type, kTile>(p, r8, blocks, a, out + r8, ld, first);
      else panel_tile<Type, 1>(p, r8, blocks, a, out + r8, ld, first);
    }
    if (rows < 16)
      for (int i = 0; i < n; i++) memcpy(y + size_t(t + i) * ldy, tmp + i * 16, size_t(rows) * 4);
    t += n;
  }
}

template <class Type>
void matmul_int(const void* w, int K, const void* act, int T, float* y, size_t ldy, int r0, int r1, void* scratch) {
  if (T < kTile) return few_tokens<Type>(w, K, act, T, y, ldy, r0, r1);
  constexpr int B = Type::kBlock, kPiece = kIntPiece / B;
  const int blocks = K / B;
  const Panel p = panel_in<Type>(scratch);
  // As many tokens at a time as stay in the second cache, but enough to pay for the panels.
  const int some = K > 4096 ? 64 : (256 * 1024 / K + 7) & ~7;
  for (int t = 0; t < T; t += some)
    for (int r = r0; r < r1; r += 16)
      for (int b = 0; b < blocks; b += kPiece) {
        const int n = min_int(kPiece, blocks - b);
        fill_panel<Type>(w, size_t(blocks) * Type::kBytes, r, r1 - 1, b, n, p);
        panel_tokens<Shape<Type>>(p, n, act, K, b, t, min_int(T, t + some), T, y + r, ldy, min_int(16, r1 - r), b == 0);
      }
}

void fill_quant(Table& t) {
  t.quantize = quantize;
#define TL_ROW(Type, name) t.matmul_int[int(Dtype::name)] = matmul_int<Type>;
  TL_INTEGER_TYPES(TL_ROW)
#undef TL_ROW
}

}  // namespace
}  // namespace tealight::kernels
