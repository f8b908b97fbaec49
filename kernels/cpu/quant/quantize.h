// Quantization of activations. For each block of 32 or 256 values: amax = largest |x|; if amax < 2^-100 then dx = 0 and
// all q = 0, else dx = amax / 127, q = round to nearest even of x * (127 / amax). In blocks of 32, dx and s = dx * sum(q) are
// then rounded to 11 significant bits (half precision's, with float's range), which other engines' blocks have too: errors of
// rounding fall alike, and chains of argmax and routing with them. Include after quant/round_*.h, which has
//   largest<n>(x, ldx, count, top)      for each of n tokens, ldx floats apart, the largest pattern of |x| among `count` values (a
//                                       multiple of 32): order of floats, and above infinity for NaN
//   round32<n>(x, ldx, id, to, sums)    32 values x * id of each token, rounded, four of one after four of another; and the sums of
//                                       each token's first 16 and last 16: sums[0], sums[1]
// n is 1 or kActTile.
#pragma once
#include "kernels/cpu/act.h"

namespace tealight::kernels {
namespace {

// v to 11 significant bits, nearest even; v is finite and not near the top of the range.
float round11(float v) {
  uint32_t u = bits(v);
  u += 0xfff + ((u >> 13) & 1);
  return from_bits(u & ~uint32_t(0x1fff));
}

// A tile of n tokens.
template <int B, int n>
bool quantize_tile(const float* x, size_t ldx, int K, const ActTile& a) {
  for (int b = 0; b < K / B; b++, x += B) {
    float dx[n], id[n];
    uint32_t top[n];
    bool finite = true;
    largest<n>(x, ldx, B, top);
    TL_UNROLL for (int t = 0; t < n; t++) {
      const float amax = from_bits(top[t]);
      const bool zero = amax < 0x1p-100f;
      finite &= top[t] < 0x7f800000;
      dx[t] = zero ? 0.0f : amax / 127.0f, id[t] = zero ? 0.0f : 127.0f / amax;
      a.dx[b * n + t] = B == 32 ? round11(dx[t]) : dx[t];
    }
    if (!finite) return false;
    for (int j = 0; j < B / 32; j++) {
      int32_t sums[2][n];
      round32<n>(x + j * 32, ldx, id, a.q + size_t(b * B + j * 32) * n, sums);
      const int pair = b * (B / 32) + j;
      TL_UNROLL for (int t = 0; t < n; t++) {
        const int32_t sum = sums[0][t] + sums[1][t];
        if (B == 32) {
          a.sum[pair * n + t] = sum;
          a.s[pair * n + t] = round11(dx[t] * float(sum));
        } else {
          a.sum16[(pair * n + t) * 2] = int16_t(sums[0][t]);
          a.sum16[(pair * n + t) * 2 + 1] = int16_t(sums[1][t]);
          a.sum32[((pair >> 1) * n + t) * 2 + (pair & 1)] = int16_t(sum);
        }
      }
    }
  }
  return true;
}

template <int B>
bool quantize_tokens(const float* x, size_t ldx, int T, int K, void* act) {
  bool ok = true;
  for (int t = 0, n; t < T; t += n) {
    n = T - t >= kActTile ? kActTile : 1;
    const ActTile a = act_tile(B == 256 ? Family::block256 : Family::block32, act, K, t, n);
    const float* rows = x + size_t(t) * ldx;
    ok &= n == kActTile ? quantize_tile<B, kActTile>(rows, ldx, K, a) : quantize_tile<B, 1>(rows, ldx, K, a);
  }
  return ok;
}
bool quantize(Family family, const float* x, size_t ldx, int T, int K, void* act) {
  return (family == Family::block256 ? quantize_tokens<256> : quantize_tokens<32>)(x, ldx, T, K, act);
}

}  // namespace
}  // namespace tealight::kernels
