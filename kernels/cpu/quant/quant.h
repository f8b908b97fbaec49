// Integer rows times quantized activations for AVX2 and above; the written order is in quant/ref.cpp.
//   few tokens   rows as they lie, 8 side by side: inside a row lanes are k; integer sums are folded so that lanes are rows
//   else         16 rows at a time are unpacked into a panel and multiplied with tiles of tokens
// Include after vec/*.h and these, which differ by instruction set:
//   dot_add(acc, u, s)      8 lanes: acc + 4 products u * s, u unsigned (at most 128), s in [-127, 127]
//   madd_add(acc, a, b)     8 lanes: acc + 2 products of 16-bit numbers
//   panel_tokens<Shape>(panel, blocks, act, K, first block, t0, t1, T, y, ldy, rows, first)   a panel times tokens t0..t1-1 of T
#pragma once
#include "kernels/cpu/act.h"
#include "kernels/cpu/quant/panel.h"

namespace tealight::kernels {
namespace {

// Lane r = sum of the 8 lanes of v[r].
inline __m256i sum8(const __m256i* v) {
  const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
  const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}
inline __m256 halves_strided(const uint8_t* p, size_t stride) {
  const __m128i v = _mm_setr_epi16(short(load_u16(p)), short(load_u16(p + stride)), short(load_u16(p + 2 * stride)),
                                   short(load_u16(p + 3 * stride)), short(load_u16(p + 4 * stride)), short(load_u16(p + 5 * stride)),
                                   short(load_u16(p + 6 * stride)), short(load_u16(p + 7 * stride)));
  return _mm256_cvtph_ps(v);
}
// For signed codes the sign moves to the activation: |w| <= 128 and |x| <= 127, so pairs stay below 32768.
template <class Type>
inline __m256i pairs16(__m256i code, __m256i x) {
  if constexpr (Type::kMaxCode == 0) return _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(x, code));
  else return _mm256_maddubs_epi16(code, x);
}
// The sub-scales of values 32 j .. 32 j + 31 in every 16-bit lane.
template <class Type>
inline __m256i scale_lanes(__m256i sc, int j) {
  const char e = char(Type::kSub == 32 ? 2 * j : 4 * (j % 4)), f = char(Type::kSub == 32 ? e : e + 2);
  const __m256i half = Type::kSub == 32 || j < 4 ? _mm256_permute2x128_si256(sc, sc, 0x00) : _mm256_permute2x128_si256(sc, sc, 0x11);
  const int lo = (e | (e + 1) << 8) * 0x10001, hi = (f | (f + 1) << 8) * 0x10001;
  return _mm256_shuffle_epi8(half, _mm256_setr_epi32(lo, lo, lo, lo, hi, hi, hi, hi));
}

constexpr int kAhead = 512;  // bytes of prefetch along a row

// Eight rows `stride` bytes apart times one token.
template <class Type>
[[gnu::noinline]] void rows8(const uint8_t* w, size_t stride, int blocks, const ActTile& a, float* out) {
  constexpr int B = Type::kBlock;
  __m256 acc = _mm256_setzero_ps();
  const uint8_t* next = w + 8 * stride;
  for (int b = 0; b < blocks; b++, w += Type::kBytes) {
    // The next eight rows in the order of their addresses, which memory likes better than eight streams.
    for (int l = 0; l < 8 * Type::kBytes; l += 64) __builtin_prefetch(next + l, 0, 2);
    next += 8 * Type::kBytes;
    const int8_t* q = a.q + b * B;
    const __m256 dx = _mm256_set1_ps(a.dx[b]);
    __m256i v[8], m[8];
    if constexpr (B == 32) {
      const __m256i x = load256(q);
      TL_UNROLL for (int i = 0; i < 8; i++) {
        const uint8_t* block = w + size_t(i) * stride;
        if (Type::kBytes >= 32) __builtin_prefetch(block + kAhead);
        const __m256i code = Type::codes32(block, 0);
        if constexpr (Type::kMaxCode == 0) v[i] = dot_add(_mm256_setzero_si256(), _mm256_abs_epi8(code), _mm256_sign_epi8(x, code));
        else v[i] = dot_add(_mm256_setzero_si256(), code, x);
      }
    } else {
      const __m256i sums = Type::kSub == 16 ? load256(a.sum16 + b * 16) : _mm256_zextsi128_si256(load128(a.sum32 + b * 8));
      TL_UNROLL for (int i = 0; i < 8; i++) {
        const uint8_t* block = w + size_t(i) * stride;
        __m256i sc, mn;
        Type::scales16(block, &sc, &mn);
        __m256i S = _mm256_setzero_si256();
        if constexpr (Type::kOffset) S = _mm256_sub_epi32(S, _mm256_mullo_epi32(_mm256_madd_epi16(sc, sums), _mm256_set1_epi32(Type::kOffset)));
        TL_UNROLL for (int j = 0; j < 8; j++)
          S = madd_add(S, pairs16<Type>(Type::codes32(block, j), load256(q + j * 32)), scale_lanes<Type>(sc, j));
        v[i] = S;
        if constexpr (Type::kMinAt >= 0) m[i] = _mm256_madd_epi16(mn, sums);
      }
    }
    __m256i I = sum8(v);
    if constexpr (B == 32 && Type::kOffset != 0) I = _mm256_sub_epi32(I, _mm256_set1_epi32(a.sum[b] * Type::kOffset));
    acc = _mm256_fmadd_ps(_mm256_mul_ps(halves_strided(w + Type::kScaleAt, stride), dx), _mm256_cvtepi32_ps(I), acc);
    if constexpr (Type::kMinAt >= 0) {
      const __m256 least = halves_strided(w + Type::kMinAt, stride);
      if constexpr (B == 32) acc = _mm256_fmadd_ps(least, _mm256_set1_ps(a.s[b]), acc);
      else acc = _mm256_fnmadd_ps(_mm256_mul_ps(least, dx), _mm256_cvtepi32_ps(sum8(m)), acc);
    }
  }
  _mm256_storeu_ps(out, acc);
}

template <class Type>
void few_tokens(const void* w, int K, const void* act, int T, float* y, size_t ldy, int r0, int r1) {
  constexpr Family family = Type::kBlock == 32 ? Family::block32 : Family::block256;
  const int blocks = K / Type::kBlock;
  const size_t stride = size_t(blocks) * Type::kBytes;
  const auto rows = [&](int r, size_t step, int n) {
    for (int t = 0; t < T; t++) {
      float tmp[8];
      rows8<Type>(static_cast<const uint8_t*>(w) + size_t(r) * stride, step, blocks, act_tile(family, act, K, t, 1), tmp);
      memcpy(y + size_t(t) * ldy + r, tmp, size_t(n) * 4);
    }
  };
  int r = r0;
  for (; r + 8 <= r1; r += 8) rows(r, stride, 8);
  if (r < r1 && r1 - r0 >= 8) rows(r1 - 8, stride, 8);       // the last 8 again, some computed twice
  else for (; r < r1; r++) rows(r, 0, 1);                    // fewer than 8: the same row in every lane
}

// Rows r0..r1-1 times all T tokens; fill(row, first block, blocks, panel) unpacks 16 rows.
template <class Type, class Fill>
inline void matmul_panels(int K, const void* act, int T, float* y, size_t ldy, int r0, int r1, void* scratch, const Fill& fill) {
  constexpr int B = Type::kBlock, kPiece = kIntPiece / B;
  const int blocks = K / B;
  const Panel p = panel_in<Type>(scratch);
  // As many tokens at a time as stay in the second cache, but enough to pay for the panels.
  const int some = K > 4096 ? 64 : (256 * 1024 / K + 7) & ~7;
  for (int t = 0; t < T; t += some)
    for (int r = r0; r < r1; r += 16)
      for (int b = 0; b < blocks; b += kPiece) {
        const int n = min_int(kPiece, blocks - b);
        fill(r, b, n, p);
        panel_tokens<Shape<Type>>(p, n, act, K, b, t, min_int(T, t + some), T, y + r, ldy, min_int(16, r1 - r), b == 0);
      }
}

template <class Type>
void matmul_int(const void* w, int K, const void* act, int T, float* y, size_t ldy, int r0, int r1, void* scratch) {
  if (T < kTile) return few_tokens<Type>(w, K, act, T, y, ldy, r0, r1);
  matmul_panels<Type>(K, act, T, y, ldy, r0, r1, scratch, [&](int r, int b, int n, const Panel& p) {
    fill_panel<Type>(w, row_bytes(Type::kDtype, size_t(K)), r, r1 - 1, b, n, p);
  });
}

// A tile's part from block b on.
template <class Type>
inline ActTile tile_from(const void* act, int K, int token, int n, int b) {
  constexpr int B = Type::kBlock;
  ActTile a = act_tile(B == 32 ? Family::block32 : Family::block256, act, K, token, n);
  a.q += size_t(b) * B * size_t(n);
  a.dx += b * n;
  if (B == 32) a.s += b * n, a.sum += b * n;
  else a.sum16 += b * 16 * n, a.sum32 += b * 8 * n;
  return a;
}

}  // namespace
}  // namespace tealight::kernels
