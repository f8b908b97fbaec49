// Plain rows for AVX2 and above: 8 side by side times one token, or 16 unpacked into a panel. Include after vec/*.h and
//   dot_add(acc, u, s)      8 lanes: acc + 4 products u * s, u unsigned (at most 128), s in [-127, 127]
//   madd_add(acc, a, b)     8 lanes: acc + 2 products of 16-bit numbers
#pragma once
#include "kernels/cpu/quant/multiply.h"

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
      for (int i = 0; i < 8; i++) {
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

// The f16 fields of 8 rows.
inline __m256 halves8(const uint8_t* const* row, size_t at) {
  const __m128i v = _mm_setr_epi16(short(load_u16(row[0] + at)), short(load_u16(row[1] + at)), short(load_u16(row[2] + at)),
                                   short(load_u16(row[3] + at)), short(load_u16(row[4] + at)), short(load_u16(row[5] + at)),
                                   short(load_u16(row[6] + at)), short(load_u16(row[7] + at)));
  return _mm256_cvtph_ps(v);
}

template <class Type>
[[gnu::noinline]] void fill_plain(const void* w, size_t stride, int r, int last, int b0, int blocks, const Panel& p) {
  constexpr int B = Type::kBlock, kPairs = B / Type::kSub / 2;
  // Whole rows: the next 16 are prefetched in the order of their addresses; else what follows in these.
  const bool whole = size_t(blocks) * Type::kBytes == stride;
  const uint8_t* next = static_cast<const uint8_t*>(w) + size_t(r + 16) * stride;
  for (int h = 0; h < 16; h += 8) {
    const uint8_t* row[8];
    for (int i = 0; i < 8; i++)
      row[i] = static_cast<const uint8_t*>(w) + size_t(min_int(r + h + i, last)) * stride + size_t(b0) * Type::kBytes;
    for (int b = 0; b < blocks; b++) {
      TL_UNROLL for (int j = 0; j < B / 32; j++) {
        __m256i v[8];
        TL_UNROLL for (int i = 0; i < 8; i++) v[i] = Type::codes32(row[i], j);
        transpose8(v);
        uint8_t* to = p.code + size_t(b * B + j * 32) * 16 + h * 4;
        TL_UNROLL for (int i = 0; i < 8; i++) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * 64), v[i]);
      }
      _mm256_storeu_ps(p.d + b * 16 + h, halves8(row, Type::kScaleAt));
      if constexpr (Type::kMinAt >= 0) _mm256_storeu_ps(p.m + b * 16 + h, halves8(row, Type::kMinAt));
      if constexpr (B == 256) {
        __m256i sc[8], mn[8];
        TL_UNROLL for (int i = 0; i < 8; i++) Type::scales16(row[i], sc + i, mn + i);
        transpose8(sc);
        int16_t* to = p.sc + b * kPairs * 32 + h * 2;
        TL_UNROLL for (int i = 0; i < kPairs; i++) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * 32), sc[i]);
        if constexpr (Type::kMinAt >= 0) {
          transpose8(mn);
          to = p.mn + b * kPairs * 32 + h * 2;
          TL_UNROLL for (int i = 0; i < kPairs; i++) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * 32), mn[i]);
        }
      }
      if (whole) {
        for (int l = 0; l < 8 * Type::kBytes; l += 64) __builtin_prefetch(next + l, 0, 2);
        next += 8 * Type::kBytes;
      } else {
        for (int i = 0; i < 8; i++)
          for (int l = 0; l < Type::kBytes; l += 64) __builtin_prefetch(row[i] + l + kAhead);
      }
      for (int i = 0; i < 8; i++) row[i] += Type::kBytes;
    }
  }
}

}  // namespace
}  // namespace tealight::kernels
