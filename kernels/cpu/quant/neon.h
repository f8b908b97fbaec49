// Integer products with the dot product of NEON. Weights and activations are both signed bytes, so nothing overflows and no bias
// is needed: an offset is taken from the codes themselves, or in blocks of 32 through the sums of the activations.
// Include after vec/neon.h, round_neon.h and quantize.h. TL_I8MM says that there are products of 2 x 8 by 8 x 2 matrices.
#pragma once
#include "kernels/cpu/quant/lanes_neon.h"
#include "kernels/cpu/quant/plain_neon.h"
#include "kernels/cpu/quant/x16.h"

namespace tealight::kernels {
namespace {

inline int8x16_t word(const void* p) {
  int32_t v;
  memcpy(&v, p, 4);
  return vreinterpretq_s8_s32(vdupq_n_s32(v));
}
// The first (e = 0) or the second of each pair of 16-bit numbers.
inline int32x4_t one_of(int32x4_t pairs, int e) { return vshrq_n_s32(e ? pairs : vshlq_n_s32(pairs, 16), 16); }

// Sums by pairs: of a[i] * b[i] + a[i + 1] * b[i + 1], the pair b the same for all lanes of a.
struct PairSums {
  int32x4_t low = vdupq_n_s32(0), high = vdupq_n_s32(0);
  void add(int32x4_t a, const int16_t* b) {
    int32_t v;
    memcpy(&v, b, 4);
    const int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(vdupq_n_s32(v));
    low = vmlal_s16(low, vget_low_s16(x), vget_low_s16(y));
    high = vmlal_high_s16(high, x, y);
  }
  int32x4_t sums() const { return vpaddq_s32(low, high); }
};

// s[t][h] = sum of the products of `words` words of a panel's rows 4 h .. 4 h + 3, less `offset`, with those of a tile's token t.
template <int T, int words, int offset>
inline void products(const uint8_t* code, const int8_t* q, int32x4_t (*s)[2]) {
  const auto weights = [](const uint8_t* p) { return offset ? vsubq_s8(load_s8(p), vdupq_n_s8(offset)) : load_s8(p); };
#if TL_I8MM
  if constexpr (T == kActTile) {  // pairs of rows by pairs of tokens
    int32x4_t m[2][4];
    TL_UNROLL for (int i = 0; i < 8; i++) m[i / 4][i % 4] = vdupq_n_s32(0);
    TL_UNROLL for (int i = 0; i < words; i += 2) {
      const int32x4_t x0 = load_s32x4(q + i * 16), x1 = load_s32x4(q + i * 16 + 16);
      const int8x16_t x[2] = {vreinterpretq_s8_s32(vzip1q_s32(x0, x1)), vreinterpretq_s8_s32(vzip2q_s32(x0, x1))};
      TL_UNROLL for (int h = 0; h < 2; h++) {
        const int32x4_t v0 = vreinterpretq_s32_s8(weights(code + i * 64 + h * 16));
        const int32x4_t v1 = vreinterpretq_s32_s8(weights(code + i * 64 + 64 + h * 16));
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
    const int8x16_t v[2] = {weights(code + i * 64), weights(code + i * 64 + 16)};
    if constexpr (T == kActTile) {
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

// A panel, as two halves of 8 rows, times a tile of T tokens.
template <class Type, int T>
[[gnu::noinline]] void panel_tile(const Panel& p, int blocks, const ActTile* tile, float* y, size_t ldy, bool first) {
  const ActTile& a = *tile;
  constexpr int H = 2, B = Type::kBlock, kSubs = B / Type::kSub, kPairs = kSubs / 2;
  for (int r = 0; r < 16; r += 8) {
    float32x4_t acc[T][H];
    TL_UNROLL for (int t = 0; t < T; t++) TL_UNROLL for (int h = 0; h < H; h++)
      acc[t][h] = first ? vdupq_n_f32(0) : vld1q_f32(y + size_t(t) * ldy + r + h * 4);
    const uint8_t* code = p.code + r * 4;
    const int8_t* q = a.q;
    for (int b = 0; b < blocks; b++) {
      int32x4_t S[T][H];
      if constexpr (B == 32) {
        products<T, 8, 0>(code, q, S);
        if constexpr (Type::kOffset != 0)
          TL_UNROLL for (int t = 0; t < T; t++) TL_UNROLL for (int h = 0; h < H; h++)
            S[t][h] = vsubq_s32(S[t][h], vdupq_n_s32(a.sum[b * T + t] * Type::kOffset));
        code += 32 * 16;
        q += 32 * T;
      } else {
        TL_UNROLL for (int t = 0; t < T; t++) TL_UNROLL for (int h = 0; h < H; h++) S[t][h] = vdupq_n_s32(0);
        for (int j = 0; j < kSubs; j++) {
          int32x4_t s[T][H];
          products<T, Type::kSub / 4, Type::kOffset>(code, q, s);
          TL_UNROLL for (int h = 0; h < H; h++) {
            const int32x4_t k = one_of(load_s32x4(p.sc + ((b * kSubs + j) / 2 * 16 + r + h * 4) * 2), j % 2);
            TL_UNROLL for (int t = 0; t < T; t++) S[t][h] = vmlaq_s32(S[t][h], s[t][h], k);
          }
          code += Type::kSub * 16;
          q += Type::kSub * T;
        }
      }
      TL_UNROLL for (int h = 0; h < H; h++) {
        const float32x4_t d = vld1q_f32(p.d + b * 16 + r + h * 4);
        TL_UNROLL for (int t = 0; t < T; t++) {
          const float dx = a.dx[b * T + t];
          acc[t][h] = vfmaq_f32(acc[t][h], vmulq_n_f32(d, dx), vcvtq_f32_s32(S[t][h]));
          if constexpr (Type::kMin) {
            const float32x4_t least = vld1q_f32(p.m + b * 16 + r + h * 4);
            if constexpr (B == 32) {
              acc[t][h] = vfmaq_n_f32(acc[t][h], least, a.s[b * T + t]);
            } else {
              PairSums M;
              const int16_t* sums = Type::kSub == 16 ? a.sum16 : a.sum32;
              TL_UNROLL for (int i = b * kPairs; i < (b + 1) * kPairs; i++)
                M.add(load_s32x4(p.mn + (i * 16 + r + h * 4) * 2), sums + (i * T + t) * 2);
              acc[t][h] = vfmsq_f32(acc[t][h], vmulq_n_f32(least, dx), vcvtq_f32_s32(M.sums()));
            }
          }
        }
      }
    }
    TL_UNROLL for (int t = 0; t < T; t++) TL_UNROLL for (int h = 0; h < H; h++)
      vst1q_f32(y + size_t(t) * ldy + r + h * 4, acc[t][h]);
  }
}

template <class Type>
[[gnu::noinline]] void x16_group(const uint8_t* group, int blocks, const ActTile& a, float* out) {
  using L = LanesNeon;
  constexpr int H = L::kParts, B = Type::kBlock, kSubs = B / Type::kSub, kQuads = Type::kSub / 4;
  float32x4_t acc[H];
  TL_UNROLL for (int h = 0; h < H; h++) acc[h] = vdupq_n_f32(0);
  const int8_t* q = a.q;
  for (int b = 0; b < blocks; b++, q += B) {
    const X16Block at = x16_block<Type>(group, b);
    const uint8_t *w = at.words, *f = at.fields;
    int32x4_t S[H];
    PairSums M[H];  // of minimum * (sum of q)
    TL_UNROLL for (int h = 0; h < H; h++) S[h] = vdupq_n_s32(B == 32 ? -a.sum[b] * Type::kOffset : 0);
    // Words of sub-block j, added to s; in blocks of 256 an offset is taken from the codes.
    const auto add_words = [&](int j, int32x4_t* s) {
      stream_ahead<Type>(w, j, kSubs);
      TL_UNROLL for (int i = 0; i < kQuads; i++) {
        const int8x16_t x = word(q + (j * kQuads + i) * 4);
        TL_UNROLL for (int h = 0; h < H; h++) {
          int8x16_t code = vreinterpretq_s8_u32(Type::template x16_codes<L>(w + h * 16, j * kQuads + i));
          if constexpr (B == 256 && Type::kOffset != 0) code = vsubq_s8(code, vdupq_n_s8(Type::kOffset));
          s[h] = vdotq_s32(s[h], code, x);
        }
      }
    };
    if constexpr (B == 32) {
      add_words(0, S);
    } else {
      TL_UNROLL for (int j = 0; j < kSubs; j++) {
        int32x4_t s[H];
        TL_UNROLL for (int h = 0; h < H; h++) s[h] = vdupq_n_s32(0);
        add_words(j, s);
        TL_UNROLL for (int h = 0; h < H; h++) {
          const int32x4_t k = vreinterpretq_s32_u32(Type::template x16_scales<L>(f + h * 8, w + h * 16, j / 2));
          S[h] = vmlaq_s32(S[h], s[h], one_of(k, j % 2));
          if constexpr (Type::kMinAt >= 0) {
            if (j % 2 == 0)
              M[h].add(vreinterpretq_s32_u32(Type::template x16_mins<L>(f + h * 8, w + h * 16, j / 2)),
                       (Type::kSub == 16 ? a.sum16 : a.sum32) + b * kSubs + j);
          }
        }
      }
    }
    TL_UNROLL for (int h = 0; h < H; h++) {
      acc[h] = vfmaq_f32(acc[h], vmulq_n_f32(L::half(f + h * 8, 0), a.dx[b]), vcvtq_f32_s32(S[h]));
      if constexpr (Type::kMinAt >= 0) {
        const float32x4_t least = L::half(f + h * 8, 1);
        if constexpr (B == 32) acc[h] = vfmaq_n_f32(acc[h], least, a.s[b]);
        else acc[h] = vfmsq_f32(acc[h], vmulq_n_f32(least, a.dx[b]), vcvtq_f32_s32(M[h].sums()));
      }
    }
  }
  TL_UNROLL for (int h = 0; h < H; h++) vst1q_f32(out + h * 4, acc[h]);
}

// One after the other: the prefetch of one stream keeps the memory busy.
template <class Type>
void x16_rows(const uint8_t* group, int groups, int blocks, const ActTile* a, float* out, size_t) {
  for (int i = 0; i < groups; i++) x16_group<Type>(group + size_t(i) * 16 * x16_row_bytes(Type::kDtype, size_t(blocks) * Type::kBlock), blocks, *a, out + i * 16);
}

}  // namespace

static const QuantSet set = {
#define TL_ROW(Type, name)                                                                                  \
  .name = {Dtype::name, Type::kSub, Type::kOffset, Type::kMinAt >= 0, rows8<Type>, x16_rows<Type>, nullptr, \
           {fill_plain<Type>, fill_x16<Type, LanesNeon>}, &set.name.own,                                    \
           panel_tile<Shape<Type>, 1>, panel_tile<Shape<Type>, kActTile>, nullptr},
    TL_INTEGER_TYPES(TL_ROW)
#undef TL_ROW
};
}  // namespace tealight::kernels
