// The parts of float.h that differ by instruction set, for NEON: half precision both ways, few tokens times plain floats, and
// the transposition of rows into a panel.
#pragma once
#include "kernels/cpu/float/rows.h"

namespace tealight::kernels {
namespace {

void widen_f16(const void* src, float* dst, size_t n) {
  const uint8_t* p = static_cast<const uint8_t*>(src);
  size_t i = 0;
  for (; i + 4 <= n; i += 4) vst1q_f32(dst + i, load_f16x4(p + 2 * i));
  for (; i < n; i++) dst[i] = load_f16(p + 2 * i);
}
void to_f16(const float* src, uint16_t* dst, size_t n) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4) vst1_u16(dst + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i))));
  for (; i < n; i++) dst[i] = f32_to_f16(src[i]);
}

struct F32 {
  static constexpr int kBytes = 4;
  static float32x4_t load4(const uint8_t* p) { return load_f32x4(p); }
};
struct F16 {
  static constexpr int kBytes = 2;
  static float32x4_t load4(const uint8_t* p) { return load_f16x4(p); }
};
struct Bf16 {
  static constexpr int kBytes = 2;
  static float32x4_t load4(const uint8_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16)); }
};

// acc[t] += four rows times x, k0..k0+n-1 in rising order, in lanes g of Vec; v[i] holds row i at k0..k0+3.
template <int T>
inline void multiply4(float32x4_t* v, const float* x, size_t ldx, int n, Vec* acc, int g) {
  transpose4(v);
  if (n == 4) {
    TL_UNROLL for (int k = 0; k < 4; k++)
      TL_UNROLL for (int t = 0; t < T; t++) acc[t].v[g] = vfmaq_n_f32(acc[t].v[g], v[k], x[size_t(t) * ldx + size_t(k)]);
    return;
  }
  for (int k = 0; k < n; k++)
    for (int t = 0; t < T; t++) acc[t].v[g] = vfmaq_n_f32(acc[t].v[g], v[k], x[size_t(t) * ldx + size_t(k)]);
}

template <class E, int T>
[[gnu::noinline]] void few_tokens(const void* w, size_t stride, int K, const float* x, size_t ldx, float* y, size_t ldy, int r0, int r1) {
  constexpr int kAhead = 512;                         // bytes of prefetch along each row
  constexpr int kRowsEach = 16 * 4 * E::kBytes / 64;  // rows whose next line one step of 4 k asks for
  for (int r = r0; r < r1; r += 16) {
    const Rows row(w, stride, r, r1 - 1);
    Vec acc[T];
    for (int t = 0; t < T; t++) acc[t] = Vec::set(0.0f);
    int k = 0, ask = 0;
    for (; k + 4 <= K; k += 4) {
      for (int i = 0; i < kRowsEach; i++) __builtin_prefetch(row.at[ask + i] + k * E::kBytes + kAhead);
      ask = (ask + kRowsEach) & 15;
      TL_UNROLL for (int g = 0; g < 4; g++) {
        float32x4_t v[4];
        TL_UNROLL for (int i = 0; i < 4; i++) v[i] = E::load4(row.at[g * 4 + i] + size_t(k) * E::kBytes);
        multiply4<T>(v, x + k, ldx, 4, acc, g);
      }
    }
    if (k < K) {
      for (int g = 0; g < 4; g++) {
        float32x4_t v[4];
        for (int i = 0; i < 4; i++) {
          uint8_t piece[4 * E::kBytes] = {};
          memcpy(piece, row.at[g * 4 + i] + size_t(k) * E::kBytes, size_t(K - k) * E::kBytes);
          v[i] = E::load4(piece);
        }
        multiply4<T>(v, x + k, ldx, K - k, acc, g);
      }
    }
    for (int t = 0; t < T; t++) store_n(acc[t], y + size_t(t) * ldy + r, min_int(16, r1 - r));
  }
}

// panel[k][i] = at[i][k] for n values of k
[[gnu::noinline]] void transpose_rows(const float* const* at, int n, float* panel) {
  for (int g = 0; g < 16; g += 4) {
    int k = 0;
    for (; k + 4 <= n; k += 4) {
      float32x4_t v[4];
      TL_UNROLL for (int i = 0; i < 4; i++) v[i] = vld1q_f32(at[g + i] + k);
      transpose4(v);
      TL_UNROLL for (int i = 0; i < 4; i++) vst1q_f32(panel + (k + i) * 16 + g, v[i]);
    }
    for (; k < n; k++)
      for (int i = 0; i < 4; i++) memcpy(panel + k * 16 + g + i, at[g + i] + k, 4);
  }
}

}  // namespace
}  // namespace tealight::kernels
