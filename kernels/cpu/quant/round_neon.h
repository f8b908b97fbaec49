// The two steps of quantize.h with NEON.
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

template <int n>
inline void largest(const float* x, size_t ldx, int count, uint32_t* top) {
  TL_UNROLL for (int t = 0; t < n; t++, x += ldx) {
    uint32x4_t m = vdupq_n_u32(0);
    for (int i = 0; i < count; i += 4) m = vmaxq_u32(m, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
    top[t] = vmaxvq_u32(m);
  }
}

template <int n>
inline void round32(const float* x, size_t ldx, const float* id, int8_t* to, int32_t (*sums)[n]) {
  TL_UNROLL for (int h = 0; h < 2; h++) {
    int8x16_t v[n];
    TL_UNROLL for (int t = 0; t < n; t++) {
      int16x4_t a[4];
      TL_UNROLL for (int i = 0; i < 4; i++)
        a[i] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + size_t(t) * ldx + h * 16 + i * 4), id[t])));
      v[t] = vcombine_s8(vmovn_s16(vcombine_s16(a[0], a[1])), vmovn_s16(vcombine_s16(a[2], a[3])));
      sums[h][t] = vaddlvq_s8(v[t]);
    }
    if constexpr (n == 1) {
      vst1q_s8(to + h * 16, v[0]);
    } else {
      uint32x4x4_t w;
      TL_UNROLL for (int t = 0; t < n; t++) w.val[t] = vreinterpretq_u32_s8(v[t]);
      vst4q_u32(reinterpret_cast<uint32_t*>(to + h * 64), w);
    }
  }
}

}  // namespace
}  // namespace tealight::kernels
