// 4 of the 16 rows of a group in one register; see lanes_avx2.h. Include after vec/neon.h.
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

struct LanesNeon {
  using V = uint32x4_t;
  using F = float32x4_t;
  static constexpr int kParts = 4;

  static V word(const uint8_t* w, int i) { return words(load16(w + i * 64)); }
  static V field(const uint8_t* f, int i) { return vmovl_u16(vreinterpret_u16_u8(vld1_u8(f + i * 32))); }
  static F half(const uint8_t* f, int i) { return load_f16x4(f + i * 32); }
  static V set(int32_t v) { return vdupq_n_u32(uint32_t(v)); }
  static V bit_and(V a, V b) { return vandq_u32(a, b); }
  static V bit_or(V a, V b) { return vorrq_u32(a, b); }
  static V right(V v, int n) { return vshlq_u32(v, vdupq_n_s32(-n)); }
  static V left(V v, int n) { return vshlq_u32(v, vdupq_n_s32(n)); }
  static V min8(V a, V b) { return words(vminq_u8(bytes(a), bytes(b))); }
  static V sub16(V v, int n) { return vreinterpretq_u32_u16(vsubq_u16(vreinterpretq_u16_u32(v), vdupq_n_u16(uint16_t(n)))); }
  static V look_up(const int8_t* book, V index) { return words(vqtbl1q_u8(vreinterpretq_u8_s8(vld1q_s8(book)), bytes(index))); }
  static V spread(V v, int b) { return words(vqtbl1q_u8(bytes(v), each(b * 0x01010101))); }
  static V pair(V v, int b) { return words(vqtbl1q_u8(bytes(v), each(b | (b + 1) << 16, int32_t(0x80008000)))); }
  static V pair_signed(V v, int b) {
    const uint8x16_t high = vqtbl1q_u8(bytes(v), each(b << 8 | (b + 1) << 24));
    return vreinterpretq_u32_s16(vshrq_n_s16(vreinterpretq_s16_u8(high), 8));
  }
  static void store(void* to, V v) { vst1q_u8(static_cast<uint8_t*>(to), bytes(v)); }
  static void store(float* to, F v) { vst1q_f32(to, v); }

 private:
  static uint8x16_t bytes(V v) { return vreinterpretq_u8_u32(v); }
  static V words(uint8x16_t v) { return vreinterpretq_u32_u8(v); }
  // Byte numbers within each lane, as an index; numbers from 128 on give zero.
  static uint8x16_t each(int32_t numbers, int32_t zero = 0) {
    constexpr uint32_t lane[4] = {0, 0x04040404, 0x08080808, 0x0c0c0c0c};
    return vorrq_u8(bytes(set(zero)), vaddq_u8(bytes(set(numbers)), bytes(vld1q_u32(lane))));
  }
};

}  // namespace
}  // namespace tealight::kernels
