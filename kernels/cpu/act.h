// Where quantized activations lie, the same for every instruction set.
//
// Tokens come in tiles of 4 while 4 are left, the others are tiles of one. A tile of n tokens:
//   q     int8   [K / 4][n][4]       always in [-127, 127]
//   dx    float  [K / B][n]          scale of each block of B = 32 or 256 values
// and for B = 32
//   s     float  [K / 32][n]         dx * float(sum), rounded once
//   sum   int32  [K / 32][n]         sum of the block's q
// or for B = 256
//   sum16 int16  [K / 32][n][2]      sums of 16 values, by pairs (one 4-byte word serves a multiply-add of pairs)
//   sum32 int16  [K / 64][n][2]      sums of 32 values, by pairs
// A tile of one is therefore a plain row. Every token takes the same number of bytes, padded to 64.
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {

struct ActTile {
  int8_t* q;
  float* dx;
  float* s;
  int32_t* sum;
  int16_t* sum16;
  int16_t* sum32;
};

namespace {

constexpr size_t act_token_bytes(Family family, int K) {
  const size_t k = size_t(K);
  const size_t used = family == Family::block256 ? k + k / 256 * 4 + k / 16 * 2 + k / 32 * 2 : k + k / 32 * 12;
  return (used + 63) & ~size_t(63);
}

// The tile of n tokens that begins at `token` (a multiple of 4, or one of the last T % 4).
inline ActTile act_tile(Family family, const void* act, int K, int token, int n) {
  const size_t k = size_t(K), tokens = size_t(n);
  uint8_t* p = const_cast<uint8_t*>(static_cast<const uint8_t*>(act)) + size_t(token) * act_token_bytes(family, K);
  ActTile a{};
  a.q = reinterpret_cast<int8_t*>(p);
  p += tokens * k;
  a.dx = reinterpret_cast<float*>(p);
  if (family == Family::block256) {
    p += tokens * (k / 256) * 4;
    a.sum16 = reinterpret_cast<int16_t*>(p);
    a.sum32 = a.sum16 + tokens * (k / 16);
  } else {
    p += tokens * (k / 32) * 4;
    a.s = reinterpret_cast<float*>(p);
    a.sum = reinterpret_cast<int32_t*>(p + tokens * (k / 32) * 4);
  }
  return a;
}

// The same from block b on.
inline ActTile tile_from(Family family, const void* act, int K, int token, int n, int b) {
  ActTile a = act_tile(family, act, K, token, n);
  const int at = b * n;
  a.q += size_t(at) * (family == Family::block256 ? 256 : 32);
  a.dx += at;
  if (family == Family::block256) a.sum16 += at * 16, a.sum32 += at * 8;
  else a.s += at, a.sum += at;
  return a;
}

}  // namespace
}  // namespace tealight::kernels
