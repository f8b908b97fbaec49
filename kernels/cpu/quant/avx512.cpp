// Integer products with vpdpbusd (u8 * s8, four products added in 32 bits, exact). Signed codes become unsigned by
// adding 128, which the sums of the activations take back.
#include "kernels/cpu/vec/avx512.h"
#include "kernels/cpu/quant/round_avx2.h"
#include "kernels/cpu/quant/quantize.h"

namespace tealight::kernels {
namespace {

inline __m256i dot_add(__m256i acc, __m256i u, __m256i s) { return _mm256_dpbusd_epi32(acc, u, s); }
inline __m256i madd_add(__m256i acc, __m256i a, __m256i b) { return _mm256_dpwssd_epi32(acc, a, b); }

}  // namespace
}  // namespace tealight::kernels

#include "kernels/cpu/quant/lanes_avx512.h"
#include "kernels/cpu/quant/plain_avx.h"
#include "kernels/cpu/quant/x16.h"

namespace tealight::kernels {
namespace {

inline __m512i word(const void* p) {
  int32_t v;
  memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}

// A sum of 16 products that fits 16 bits is multiplied by its sub-scale with vpdpwssd, else of a sub-block with vpmulld.
template <class Type>
constexpr bool is_narrow() { return Type::kBlock == 256 && Type::kMaxCode != 0 && Type::kMaxCode * 127 * 16 < 32768; }
// The first (e = 0) or the second of a pair of sub-scales, for that multiplication.
template <bool kNarrow>
inline __m512i sub_scale(__m512i pair, int e) {
  if (kNarrow) return e ? _mm512_srli_epi32(pair, 16) : _mm512_and_si512(pair, _mm512_set1_epi32(0xffff));
  return _mm512_srai_epi32(e ? pair : _mm512_slli_epi32(pair, 16), 16);
}

// A panel times T tokens: one of a tile of one, or those of T / 4 neighbouring tiles.
template <class Type, int T>
[[gnu::noinline]] void panel_tile(const Panel& p, int blocks, const ActTile* a, float* y, size_t ldy, bool first) {
  constexpr int B = Type::kBlock, kSubs = B / Type::kSub, n = T == 1 ? 1 : kTile;
  constexpr int kSubsEach = B == 32 ? 1 : 2;  // sub-blocks in one step: their scales lie in pairs
  constexpr bool kSigned = Type::kMaxCode == 0;
  constexpr int kBias = kSigned ? 128 : Type::kOffset;
  constexpr bool kNarrow = is_narrow<Type>();
  constexpr int kGroup = kNarrow ? 4 : Type::kSub / 4;  // words between two multiplications by the sub-scale
  const __m512i flip = _mm512_set1_epi32(int(0x80808080));
  __m512 acc[T];
  TL_UNROLL for (int t = 0; t < T; t++) acc[t] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(y + size_t(t) * ldy);
  const uint8_t* code = p.code;
  const int16_t* scales = p.sc;
  int at = 0;  // of the activations
  for (int b = 0; b < blocks; b++) {
    __m512i S[T];
    TL_UNROLL for (int t = 0; t < T; t++) S[t] = _mm512_setzero_si512();
    for (int j = 0; j < kSubs; j += kSubsEach) {
      TL_UNROLL for (int e = 0; e < kSubsEach; e++) {
        __m512i k;
        if constexpr (B == 256) k = sub_scale<kNarrow>(_mm512_loadu_si512(scales), e);
        TL_UNROLL for (int g = 0; g < Type::kSub / 4; g += kGroup) {
          __m512i s[T];
          TL_UNROLL for (int t = 0; t < T; t++) s[t] = _mm512_setzero_si512();
          TL_UNROLL for (int i = 0; i < kGroup; i++) {
            const int quad = e * Type::kSub / 4 + g + i;
            __m512i v = _mm512_loadu_si512(code + quad * 64);
            if (kSigned) v = _mm512_xor_si512(v, flip);
            TL_UNROLL for (int t = 0; t < T; t++) s[t] = _mm512_dpbusd_epi32(s[t], v, word(a[t / n].q + at + (quad * n + t % n) * 4));
          }
          TL_UNROLL for (int t = 0; t < T; t++) {
            if constexpr (B == 32) S[t] = s[t];
            else if constexpr (kNarrow) S[t] = _mm512_dpwssd_epi32(S[t], s[t], k);
            else S[t] = _mm512_add_epi32(S[t], _mm512_mullo_epi32(s[t], k));
          }
        }
      }
      code += kSubsEach * Type::kSub * 16;
      at += kSubsEach * Type::kSub * n;
      scales += 32;
    }
    const __m512 d = _mm512_loadu_ps(p.d + b * 16);
    __m512 least;
    if constexpr (Type::kMin) least = _mm512_loadu_ps(p.m + b * 16);
    TL_UNROLL for (int t = 0; t < T; t++) {
      const ActTile& tile = a[t / n];
      const int token = b * n + t % n;
      const __m512 dx = _mm512_set1_ps(tile.dx[token]);
      // sum over sub-blocks of v * (sum of q), by pairs
      const auto with_sums = [&](const int16_t* v) {
        __m512i sum = _mm512_setzero_si512();
        const int16_t* q = Type::kSub == 16 ? tile.sum16 : tile.sum32;
        TL_UNROLL for (int i = 0; i < kSubs / 2; i++) {
          const int pair = b * kSubs / 2 + i;
          sum = _mm512_dpwssd_epi32(sum, _mm512_loadu_si512(v + pair * 32), word(q + (pair * n + t % n) * 2));
        }
        return sum;
      };
      if constexpr (kBias != 0) {
        const __m512i all = B == 32 ? _mm512_set1_epi32(tile.sum[token]) : with_sums(p.sc);
        S[t] = _mm512_sub_epi32(S[t], _mm512_slli_epi32(all, __builtin_ctz(unsigned(kBias))));
      }
      acc[t] = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), _mm512_cvtepi32_ps(S[t]), acc[t]);
      if constexpr (Type::kMin) {
        if constexpr (B == 32) acc[t] = _mm512_fmadd_ps(least, _mm512_set1_ps(tile.s[token]), acc[t]);
        else acc[t] = _mm512_fnmadd_ps(_mm512_mul_ps(least, dx), _mm512_cvtepi32_ps(with_sums(p.mn)), acc[t]);
      }
    }
  }
  TL_UNROLL for (int t = 0; t < T; t++) _mm512_storeu_ps(y + size_t(t) * ldy, acc[t]);
}

template <class Type>
void panel_tokens(const Panel& p, int blocks, const void* act, int K, int b, int t0, int t1, int T, float* y, size_t ldy, int rows,
                  bool first) {
  constexpr int kTokens = 2 * kTile;
  float tmp[kTokens * 16];
  for (int t = t0; t < t1;) {
    const int n = t1 - t >= kTokens ? kTokens : T - t >= kTile ? kTile : 1;
    ActTile a[2] = {tile_from<Type>(act, K, t, n == 1 ? 1 : kTile, b), {}};
    if (n == kTokens) a[1] = tile_from<Type>(act, K, t + kTile, kTile, b);
    float* out = y + size_t(t) * ldy;
    size_t ld = ldy;
    if (rows < 16) {
      for (int i = 0; i < n; i++) memcpy(tmp + i * 16, out + size_t(i) * ldy, first ? 0 : size_t(rows) * 4);
      out = tmp, ld = 16;
    }
    if (n == kTokens) panel_tile<Type, kTokens>(p, blocks, a, out, ld, first);
    else if (n == kTile) panel_tile<Type, kTile>(p, blocks, a, out, ld, first);
    else panel_tile<Type, 1>(p, blocks, a, out, ld, first);
    if (rows < 16)
      for (int i = 0; i < n; i++) memcpy(y + size_t(t + i) * ldy, tmp + i * 16, size_t(rows) * 4);
    t += n;
  }
}

template <class Type>
[[gnu::noinline]] void x16_rows(const uint8_t* group, int blocks, const ActTile& a, float* out) {
  using L = Lanes512;
  constexpr int B = Type::kBlock, kSubs = B / Type::kSub, kQuads = Type::kSub / 4;
  constexpr int kSubsEach = B == 32 ? 1 : 2;  // their scales lie in pairs
  constexpr bool kSigned = Type::kMaxCode == 0;
  constexpr int kBias = kSigned ? 128 : Type::kOffset;
  constexpr bool kNarrow = is_narrow<Type>();
  constexpr int kGroup = kNarrow ? 4 : kQuads;
  const __m512i flip = _mm512_set1_epi32(int(0x80808080));
  __m512 acc = _mm512_setzero_ps();
  const int8_t* q = a.q;
  for (int b = 0; b < blocks; b++, q += B) {
    const X16Block at = x16_block<Type>(group, b);
    const uint8_t *w = at.words, *f = at.fields;
    // S: sum of sub-scale * (sum of code * q), in two chains; off, M: of sub-scale, minimum * (sum of q)
    __m512i S[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()}, off = S[0], M = S[0];
    TL_UNROLL for (int j = 0; j < kSubs; j += kSubsEach) {
      __m512i scales;
      if constexpr (B == 256) {
        const __m512i sums = word((Type::kSub == 16 ? a.sum16 : a.sum32) + b * kSubs + j);
        scales = Type::template x16_scales<L>(f, w, j / 2);
        if constexpr (kBias != 0) off = _mm512_dpwssd_epi32(off, scales, sums);
        if constexpr (Type::kMinAt >= 0) M = _mm512_dpwssd_epi32(M, Type::template x16_mins<L>(f, w, j / 2), sums);
      }
      TL_UNROLL for (int e = 0; e < kSubsEach; e++) {
        stream_ahead<Type>(at.words, j + e, kSubs);
        __m512i k;
        if constexpr (B == 256) k = sub_scale<kNarrow>(scales, e);
        TL_UNROLL for (int g = 0; g < kQuads; g += kGroup) {
          __m512i s = _mm512_setzero_si512();
          TL_UNROLL for (int i = 0; i < kGroup; i++) {
            const int quad = (j + e) * kQuads + g + i;
            __m512i v = Type::template x16_codes<L>(w, quad);
            if (kSigned) v = _mm512_xor_si512(v, flip);
            if constexpr (B == 32) S[i % 2] = _mm512_dpbusd_epi32(S[i % 2], v, word(q + quad * 4));
            else s = _mm512_dpbusd_epi32(s, v, word(q + quad * 4));
          }
          if constexpr (kNarrow) S[(e + g / kGroup) % 2] = _mm512_dpwssd_epi32(S[(e + g / kGroup) % 2], s, k);
          else if constexpr (B == 256) S[e] = _mm512_add_epi32(S[e], _mm512_mullo_epi32(s, k));
        }
      }
    }
    __m512i I = _mm512_add_epi32(S[0], S[1]);
    if constexpr (B == 32 && kBias != 0) off = _mm512_set1_epi32(a.sum[b]);
    if constexpr (kBias != 0) I = _mm512_sub_epi32(I, _mm512_slli_epi32(off, __builtin_ctz(unsigned(kBias))));
    const __m512 dx = _mm512_set1_ps(a.dx[b]);
    acc = _mm512_fmadd_ps(_mm512_mul_ps(L::half(f, 0), dx), _mm512_cvtepi32_ps(I), acc);
    if constexpr (Type::kMinAt >= 0) {
      const __m512 least = L::half(f, 1);
      if constexpr (B == 32) acc = _mm512_fmadd_ps(least, _mm512_set1_ps(a.s[b]), acc);
      else acc = _mm512_fnmadd_ps(_mm512_mul_ps(least, dx), _mm512_cvtepi32_ps(M), acc);
    }
  }
  _mm512_storeu_ps(out, acc);
}

}  // namespace

void quant_avx512(Table& t) {
  t.quantize = quantize;
#define TL_ROW(Type, name) \
  t.matmul_int[int(Dtype::name)] = matmul_int<Type>; \
  t.matmul_x16[int(Dtype::name)] = matmul_x16<Type, Lanes512>;
  TL_INTEGER_TYPES(TL_ROW)
}

}  // namespace tealight::kernels
