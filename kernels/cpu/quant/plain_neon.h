// Plain rows with the dot product of NEON: 8 side by side times one token, or 16 unpacked into a panel. Include after vec/neon.h.
#pragma once
#include "kernels/cpu/quant/multiply.h"

namespace tealight::kernels {
namespace {

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
[[gnu::noinline]] void fill_plain(const void* w, size_t stride, int r, int last, int b0, int blocks, const Panel& p) {
  constexpr int B = Type::kBlock, kPairs = B / Type::kSub / 2;
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
          TL_UNROLL for (int i = 0; i < 4; i++) v[i] = vreinterpretq_s32_s8(code[i].val[h]);
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
          for (int j = 0; j < kPairs; j++) memcpy(p.sc + ((b * kPairs + j) * 16 + g + i) * 2, sc + 2 * j, 4);
          if constexpr (Type::kMinAt >= 0)
            for (int j = 0; j < kPairs; j++) memcpy(p.mn + ((b * kPairs + j) * 16 + g + i) * 2, mn + 2 * j, 4);
        }
        row[i] += Type::kBytes;
        for (int l = 0; l < Type::kBytes; l += 64) __builtin_prefetch(row[i] + l + kAhead);
      }
    }
  }
}

}  // namespace
}  // namespace tealight::kernels
