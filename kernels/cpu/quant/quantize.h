// Quantization of activations. For each block of 32 or 256 values: amax = largest |x|; if amax < 2^-100 then dx = 0 and
// all q = 0, else dx = amax / 127, q = round to nearest even of x * (127 / amax). In blocks of 32, dx and s = dx * sum(q) are
// then rounded to 11 significant bits (half precision's, with float's range), which other engines' blocks have too: errors of
// rounding fall alike, and chains of argmax and routing with them. Include after quant/round_*.h, which has
//   largest(x, n)            the largest pattern of |x| (n a multiple of 32): order of floats, and above infinity for NaN
//   round32(x, id, q, sums)  32 values x * id rounded to q, and the sums of each 16
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

// One token of a tile of n tokens, K values at x.
template <int B>
bool quantize_token(const float* x, int K, const ActTile& a, int n, int token) {
  for (int b = 0; b < K / B; b++, x += B) {
    const uint32_t top = largest(x, B);
    if (top >= 0x7f800000) return false;
    const float amax = from_bits(top);
    const bool zero = amax < 0x1p-100f;
    const float dx = zero ? 0.0f : amax / 127.0f, id = zero ? 0.0f : 127.0f / amax;
    a.dx[b * n + token] = B == 32 ? round11(dx) : dx;
    for (int j = 0; j < B / 32; j++) {
      alignas(32) int8_t q[32];
      int32_t sums[2];
      round32(x + j * 32, id, q, sums);
      const int k = b * B + j * 32, pair = b * (B / 32) + j;
      int8_t* to = a.q + size_t(k) * size_t(n) + token * 4;
      if (n == 1) memcpy(to, q, 32);
      else for (int i = 0; i < 8; i++) memcpy(to + i * n * 4, q + i * 4, 4);
      if (B == 32) {
        a.sum[pair * n + token] = sums[0] + sums[1];
        a.s[pair * n + token] = round11(dx * float(sums[0] + sums[1]));
      } else {
        a.sum16[(pair * n + token) * 2] = int16_t(sums[0]);
        a.sum16[(pair * n + token) * 2 + 1] = int16_t(sums[1]);
        a.sum32[((pair >> 1) * n + token) * 2 + (pair & 1)] = int16_t(sums[0] + sums[1]);
      }
    }
  }
  return true;
}

bool quantize(Family family, const float* x, size_t ldx, int T, int K, void* act) {
  bool ok = true;
  for (int t = 0; t < T;) {
    const int n = T - t >= kTile ? kTile : 1;
    const ActTile a = act_tile(family, act, K, t, n);
    for (int i = 0; i < n; i++, t++) {
      const float* row = x + size_t(t) * ldx;
      ok &= family == Family::block256 ? quantize_token<256>(row, K, a, n, i) : quantize_token<32>(row, K, a, n, i);
    }
  }
  return ok;
}

}  // namespace
}  // namespace tealight::kernels
