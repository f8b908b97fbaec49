// The two steps of quantize.h with NEON.
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

inline uint32_t largest(const float* x, int n) {
  uint32x4_t m = vdupq_n_u32(0);
  for (int i = 0; i < n; i += 4) m = vmaxq_u32(m, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
  return vmaxvq_u32(m);
}
inline void round32(const float* x, float id, int8_t* q, int32_t* sums) {
  TL_UNROLL for (int h = 0; h < 2; h++) {
    int16x4_t a[4];
    TL_UNROLL for (int i = 0; i < 4; i++) a[i] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + h * 16 + i * 4), id)));
    const int8x16_t v = vcombine_s8(vmovn_s16(vcombine_s16(a[0], a[1])), vmovn_s16(vcombine_s16(a[2], a[3])));
    vst1q_s8(q + h * 16, v);
    sums[h] = vaddlvq_s8(v);
  }
}

}  // namespace
}  // namespace tealight::kernels
