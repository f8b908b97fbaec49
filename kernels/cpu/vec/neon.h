// Sixteen float lanes in four q registers, and the loads that the types' NEON code uses. Needs ARMv8 with the dot product.
#pragma once
#define TL_NEON 1
#include <arm_neon.h>

#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

inline uint8x16_t load16(const void* p) { return vld1q_u8(static_cast<const uint8_t*>(p)); }
inline int8x16_t load_s8(const void* p) { return vreinterpretq_s8_u8(load16(p)); }
inline int32x4_t load_s32x4(const void* p) { return vreinterpretq_s32_u8(load16(p)); }
inline float32x4_t load_f32x4(const void* p) { return vreinterpretq_f32_u8(load16(p)); }
inline float32x4_t load_f16x4(const void* p) {
  return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(static_cast<const uint8_t*>(p))));
}

inline int8x16x2_t both(uint8x16_t a, uint8x16_t b) { return {{vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b)}}; }
// 32 bytes from 16: the low nibbles, then the high ones.
inline int8x16x2_t nibbles32(const uint8_t* p) {
  const uint8x16_t v = load16(p);
  return both(vandq_u8(v, vdupq_n_u8(15)), vshrq_n_u8(v, 4));
}
// (v >> right) & mask of 32 bytes
inline int8x16x2_t field32(const uint8_t* p, int right, uint8_t mask) {
  const int8x16_t by = vdupq_n_s8(int8_t(-right));
  return both(vandq_u8(vshlq_u8(load16(p), by), vdupq_n_u8(mask)), vandq_u8(vshlq_u8(load16(p + 16), by), vdupq_n_u8(mask)));
}
inline int8x16x2_t or32(int8x16x2_t a, int8x16x2_t b) { return {{vorrq_s8(a.val[0], b.val[0]), vorrq_s8(a.val[1], b.val[1])}}; }
// 32 bytes: `value` where the byte at p has the bit, else 0.
inline int8x16x2_t where_bit(const uint8_t* p, int bit, uint8_t value) {
  const uint8x16_t b = vdupq_n_u8(uint8_t(1 << bit)), v = vdupq_n_u8(value);
  return both(vandq_u8(vtstq_u8(load16(p), b), v), vandq_u8(vtstq_u8(load16(p + 16), b), v));
}
// 32 bytes from 32 bits: `value` where bit i is set, else 0.
inline int8x16x2_t spread_bits(const uint8_t* p, uint8_t value) {
  const uint8x8_t bit8 = vcreate_u8(0x8040201008040201);
  const uint8x16_t bit = vcombine_u8(bit8, bit8), v = vdupq_n_u8(value);
  const uint8x16_t low = vcombine_u8(vdup_n_u8(p[0]), vdup_n_u8(p[1])), high = vcombine_u8(vdup_n_u8(p[2]), vdup_n_u8(p[3]));
  return both(vandq_u8(vtstq_u8(low, bit), v), vandq_u8(vtstq_u8(high, bit), v));
}

// Lane j of v[i] goes to lane i of v[j].
inline void transpose4(int32x4_t* v) {
  const int32x4_t a = vtrn1q_s32(v[0], v[1]), b = vtrn2q_s32(v[0], v[1]), c = vtrn1q_s32(v[2], v[3]), d = vtrn2q_s32(v[2], v[3]);
  const auto low = [](int32x4_t x, int32x4_t y) {
    return vreinterpretq_s32_s64(vtrn1q_s64(vreinterpretq_s64_s32(x), vreinterpretq_s64_s32(y)));
  };
  const auto high = [](int32x4_t x, int32x4_t y) {
    return vreinterpretq_s32_s64(vtrn2q_s64(vreinterpretq_s64_s32(x), vreinterpretq_s64_s32(y)));
  };
  v[0] = low(a, c), v[1] = low(b, d), v[2] = high(a, c), v[3] = high(b, d);
}
inline void transpose4(float32x4_t* v) {
  int32x4_t w[4];
  TL_UNROLL for (int i = 0; i < 4; i++) w[i] = vreinterpretq_s32_f32(v[i]);
  transpose4(w);
  TL_UNROLL for (int i = 0; i < 4; i++) v[i] = vreinterpretq_f32_s32(w[i]);
}

#define TL_EACH TL_UNROLL for (int i = 0; i < 4; i++)

struct Vec {
  static constexpr int kRegisters = 8;
  float32x4_t v[4];

  static uint32x4_t bits_of(float32x4_t x) { return vreinterpretq_u32_f32(x); }

  static Vec set(float x) {
    const float32x4_t q = vdupq_n_f32(x);
    return {{q, q, q, q}};
  }
  static Vec load(const float* p) { return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}}; }
  static Vec load(const uint16_t* p) { return {{load_f16x4(p), load_f16x4(p + 4), load_f16x4(p + 8), load_f16x4(p + 12)}}; }
  static Vec load(const int8_t* p) {
    const int8x16_t b = load_s8(p);
    const int16x8_t l = vmovl_s8(vget_low_s8(b)), h = vmovl_s8(vget_high_s8(b));
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(l))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(l))),
             vcvtq_f32_s32(vmovl_s16(vget_low_s16(h))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(h)))}};
  }
  void store(float* p) const { TL_EACH vst1q_f32(p + i * 4, v[i]); }
  static Vec add(Vec x, Vec y) {
    TL_EACH x.v[i] = vaddq_f32(x.v[i], y.v[i]);
    return x;
  }
  static Vec sub(Vec x, Vec y) {
    TL_EACH x.v[i] = vsubq_f32(x.v[i], y.v[i]);
    return x;
  }
  static Vec mul(Vec x, Vec y) {
    TL_EACH x.v[i] = vmulq_f32(x.v[i], y.v[i]);
    return x;
  }
  static Vec div(Vec x, Vec y) {
    TL_EACH x.v[i] = vdivq_f32(x.v[i], y.v[i]);
    return x;
  }
  static Vec fma(Vec x, Vec y, Vec z) {
    TL_EACH z.v[i] = vfmaq_f32(z.v[i], x.v[i], y.v[i]);
    return z;
  }
  // By comparison, not vmaxq_f32: where one side is NaN the second is meant.
  static Vec max(Vec x, Vec y) { return select_less(y, x, x, y); }
  static Vec min(Vec x, Vec y) { return select_less(x, y, x, y); }
  static Vec select_less(Vec x, Vec y, Vec yes, Vec no) {
    TL_EACH no.v[i] = vbslq_f32(vcltq_f32(x.v[i], y.v[i]), yes.v[i], no.v[i]);
    return no;
  }
  static Vec abs(Vec x) {
    TL_EACH x.v[i] = vabsq_f32(x.v[i]);
    return x;
  }
  static Vec copysign(Vec x, Vec s) {
    TL_EACH x.v[i] = vbslq_f32(vdupq_n_u32(0x80000000), s.v[i], x.v[i]);
    return x;
  }
  static Vec add_exponent(Vec x, Vec n) {
    TL_EACH x.v[i] = vreinterpretq_f32_u32(vaddq_u32(bits_of(x.v[i]), vshlq_n_u32(bits_of(n.v[i]), 23)));
    return x;
  }
};
#undef TL_EACH

}  // namespace
}  // namespace tealight::kernels
