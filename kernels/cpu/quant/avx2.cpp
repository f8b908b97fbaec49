// Integer products with vpmaddubsw: pairs of u8 * s8 in 16-bit lanes, saturating, so sums of pairs are only kept there
// while they cannot pass 32767: 8 results for codes < 16, 4 below 32, 2 below 64, 1 for signed bytes.
#include "kernels/cpu/vec/avx2.h"
#include "kernels/cpu/quant/round_avx2.h"
#include "kernels/cpu/quant/quantize.h"

namespace tealight::kernels {
namespace {

inline __m256i dot_add(__m256i acc, __m256i u, __m256i s) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1)));
}
inline __m256i madd_add(__m256i acc, __m256i a, __m256i b) { return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)); }

}  // namespace
}  // namespace tealight::kernels

#include "kernels/cpu/quant/lanes_avx2.h"
#include "kernels/cpu/quant/plain_avx.h"
#include "kernels/cpu/quant/x16.h"

namespace tealight::kernels {
namespace {

inline __m256i word(const void* p) {
  int32_t v;
  memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
template <class Type>
constexpr int pairs_in_16_bits() {  // vpmaddubsw results that may be added
  constexpr int n = Type::kMaxCode == 0 ? 1 : 32767 / (2 * 127 * Type::kMaxCode);
  return n >= 8 ? 8 : n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

// A panel, as two halves of 8 rows, times a tile of T tokens.
template <class Type, int T>
[[gnu::noinline]] void panel_tile(const Panel& p, int blocks, const ActTile* tile, float* y, size_t ldy, bool first) {
  const ActTile& a = *tile;
  constexpr int H = 2, B = Type::kBlock, kTogether = pairs_in_16_bits<Type>(), kSubs = B / Type::kSub;
  constexpr int kGroup = kTogether < Type::kSub / 4 ? kTogether : Type::kSub / 4;  // words between two widenings
  constexpr int kSubsEach = B == 32 ? 1 : 2;  // sub-blocks in one step: their scales lie in pairs
  // the first, or the second, of each pair of sub-scales twice
  const __m256i dup_even = _mm256_setr_epi32(0x01000100, 0x05040504, 0x09080908, 0x0d0c0d0c, 0x01000100, 0x05040504, 0x09080908, 0x0d0c0d0c);
  const __m256i dup_odd = _mm256_add_epi8(dup_even, _mm256_set1_epi8(2));
  __m256 acc[H][T];
  TL_UNROLL for (int h = 0; h < H; h++) TL_UNROLL for (int t = 0; t < T; t++)
    acc[h][t] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(y + size_t(t) * ldy + h * 8);
  const uint8_t* code = p.code;
  const int8_t* q = a.q;
  const int16_t* scales = p.sc;
  for (int b = 0; b < blocks; b++) {
    __m256i S[H][T];
    TL_UNROLL for (int h = 0; h < H; h++) TL_UNROLL for (int t = 0; t < T; t++) S[h][t] = _mm256_setzero_si256();
    for (int j = 0; j < kSubs; j += kSubsEach) {
      TL_UNROLL for (int e = 0; e < kSubsEach; e++) {
        __m256i k[H];
        TL_UNROLL for (int h = 0; h < H; h++)
          k[h] = B == 32 ? _mm256_set1_epi16(1) : _mm256_shuffle_epi8(load256(scales + h * 16), e ? dup_odd : dup_even);
        TL_UNROLL for (int g = 0; g < Type::kSub / 4; g += kGroup) {
          __m256i s[H][T];
          TL_UNROLL for (int i = 0; i < kGroup; i++) {
            const int quad = e * Type::kSub / 4 + g + i;
            __m256i v[H], u[H];
            TL_UNROLL for (int h = 0; h < H; h++) {
              v[h] = load256(code + quad * 64 + h * 32);
              u[h] = Type::kMaxCode == 0 ? _mm256_abs_epi8(v[h]) : v[h];
            }
            TL_UNROLL for (int t = 0; t < T; t++) {
              const __m256i x = word(q + (quad * T + t) * 4);
              TL_UNROLL for (int h = 0; h < H; h++) {
                const __m256i m = _mm256_maddubs_epi16(u[h], Type::kMaxCode == 0 ? _mm256_sign_epi8(x, v[h]) : x);
                s[h][t] = i == 0 ? m : _mm256_add_epi16(s[h][t], m);
              }
            }
          }
          TL_UNROLL for (int h = 0; h < H; h++) TL_UNROLL for (int t = 0; t < T; t++) S[h][t] = madd_add(S[h][t], s[h][t], k[h]);
        }
      }
      code += kSubsEach * Type::kSub * 16;
      q += kSubsEach * Type::kSub * T;
      scales += 32;
    }
    TL_UNROLL for (int h = 0; h < H; h++) {
      const __m256 d = _mm256_loadu_ps(p.d + b * 16 + h * 8);
      __m256 least;
      if constexpr (Type::kMin) least = _mm256_loadu_ps(p.m + b * 16 + h * 8);
      TL_UNROLL for (int t = 0; t < T; t++) {
        const __m256 dx = _mm256_set1_ps(a.dx[b * T + t]);
        // sum over sub-blocks of v * (sum of q), by pairs
        const auto with_sums = [&](const int16_t* v) {
          __m256i sum = _mm256_setzero_si256();
          const int16_t* of = Type::kSub == 16 ? a.sum16 : a.sum32;
          TL_UNROLL for (int i = 0; i < kSubs / 2; i++) {
            const int pair = b * kSubs / 2 + i;
            sum = madd_add(sum, load256(v + (pair * 16 + h * 8) * 2), word(of + (pair * T + t) * 2));
          }
          return sum;
        };
        if constexpr (Type::kOffset) {
          const __m256i all = B == 32 ? _mm256_set1_epi32(a.sum[b * T + t]) : with_sums(p.sc);
          S[h][t] = _mm256_sub_epi32(S[h][t], _mm256_slli_epi32(all, __builtin_ctz(Type::kOffset)));
        }
        acc[h][t] = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), _mm256_cvtepi32_ps(S[h][t]), acc[h][t]);
        if constexpr (Type::kMin) {
          if constexpr (B == 32) acc[h][t] = _mm256_fmadd_ps(least, _mm256_set1_ps(a.s[b * T + t]), acc[h][t]);
          else acc[h][t] = _mm256_fnmadd_ps(_mm256_mul_ps(least, dx), _mm256_cvtepi32_ps(with_sums(p.mn)), acc[h][t]);
        }
      }
    }
  }
  TL_UNROLL for (int h = 0; h < H; h++) TL_UNROLL for (int t = 0; t < T; t++)
    _mm256_storeu_ps(y + size_t(t) * ldy + h * 8, acc[h][t]);
}

// Of 16 rows: S, the sum of sub-scale * (sum of code * q); off and M, of sub-scale, of minimum * (sum of q).
struct GroupSums {
  __m256i S[2], off[2], M[2];
};

// Adds sub-blocks j, and j + 1 where their scales lie in pairs, of block b.
template <class Type>
inline void add_sub_blocks(const X16Block& at, const ActTile& a, int b, int j, GroupSums& s) {
  using L = Lanes256;
  constexpr int B = Type::kBlock, kTogether = pairs_in_16_bits<Type>(), kSubs = B / Type::kSub, kQuads = Type::kSub / 4;
  constexpr int kGroup = kTogether < kQuads ? kTogether : kQuads;  // words between two widenings
  const uint8_t *w[2] = {at.words, at.words + 32}, *f[2] = {at.fields, at.fields + 16};
  const int8_t* q = a.q + size_t(b) * B;
  __m256i scales[2];
  if constexpr (B == 256) {
    const __m256i of_q = word((Type::kSub == 16 ? a.sum16 : a.sum32) + b * kSubs + j);
    TL_UNROLL for (int h = 0; h < 2; h++) {
      scales[h] = Type::template x16_scales<L>(f[h], w[h], j / 2);
      if constexpr (Type::kOffset != 0) s.off[h] = madd_add(s.off[h], scales[h], of_q);
      if constexpr (Type::kMinAt >= 0) s.M[h] = madd_add(s.M[h], Type::template x16_mins<L>(f[h], w[h], j / 2), of_q);
    }
  }
  TL_UNROLL for (int e = 0; e < (B == 32 ? 1 : 2); e++) {
    __m256i k[2];
    TL_UNROLL for (int h = 0; h < 2; h++) k[h] = B == 32 ? _mm256_set1_epi16(1) : L::twice(scales[h], e);
    TL_UNROLL for (int g = 0; g < kQuads; g += kGroup) {
      __m256i part[2];
      TL_UNROLL for (int i = 0; i < kGroup; i++) {
        const int quad = (j + e) * kQuads + g + i;
        const __m256i x = word(q + quad * 4);
        TL_UNROLL for (int h = 0; h < 2; h++) {
          const __m256i m = pairs16<Type>(Type::template x16_codes<L>(w[h], quad), x);
          part[h] = i == 0 ? m : _mm256_add_epi16(part[h], m);
        }
      }
      TL_UNROLL for (int h = 0; h < 2; h++) s.S[h] = madd_add(s.S[h], part[h], k[h]);
    }
  }
}

// The float part of block b.
template <class Type>
inline void add_block(const X16Block& at, const ActTile& a, int b, GroupSums& s, __m256 (&acc)[2]) {
  using L = Lanes256;
  constexpr int B = Type::kBlock;
  const __m256 dx = _mm256_set1_ps(a.dx[b]);
  TL_UNROLL for (int h = 0; h < 2; h++) {
    if constexpr (B == 32 && Type::kOffset != 0) s.off[h] = _mm256_set1_epi32(a.sum[b]);
    if constexpr (Type::kOffset != 0) s.S[h] = _mm256_sub_epi32(s.S[h], _mm256_slli_epi32(s.off[h], __builtin_ctz(Type::kOffset)));
    acc[h] = _mm256_fmadd_ps(_mm256_mul_ps(L::half(at.fields + h * 16, 0), dx), _mm256_cvtepi32_ps(s.S[h]), acc[h]);
    if constexpr (Type::kMinAt >= 0) {
      const __m256 least = L::half(at.fields + h * 16, 1);
      if constexpr (B == 32) acc[h] = _mm256_fmadd_ps(least, _mm256_set1_ps(a.s[b]), acc[h]);
      else acc[h] = _mm256_fnmadd_ps(_mm256_mul_ps(least, dx), _mm256_cvtepi32_ps(s.M[h]), acc[h]);
    }
  }
}

// Groups side by side, a few hundred bytes of each at a time: so many streams, which the processor prefetches by itself, bring more
// from memory than one that is prefetched by software (1.2 to 1.5 times as much on a Zen 3), unless they are so short that it
// hardly begins. Blocks with sub-blocks of 16, whose lines are visited out of order, want the software (2 times as much).
template <class Type>
[[gnu::noinline]] void x16_rows(const uint8_t* group, int groups, int blocks, const ActTile& a, float* out) {
  constexpr int B = Type::kBlock, kSubs = B / Type::kSub;
  constexpr size_t kLongStream = 8192;
  const size_t stride = 16 * x16_row_bytes(Type::kDtype, size_t(blocks) * B);
  const bool alone = Type::kSub == 16 || stride < kLongStream;
  if (alone && groups > 1) {
    for (int n = 0; n < groups; n++) x16_rows<Type>(group + size_t(n) * stride, 1, blocks, a, out + n * 16);
    return;
  }
  __m256 acc[kSideBySide][2];
  for (int n = 0; n < groups; n++) acc[n][0] = acc[n][1] = _mm256_setzero_ps();
  for (int b = 0; b < blocks; b++) {
    if constexpr (B == 32) {
      for (int n = 0; n < groups; n++) {
        const X16Block at = x16_block<Type>(group + size_t(n) * stride, b);
        if (alone) stream_ahead<Type>(at.words, 0, 1);
        GroupSums s = {};
        add_sub_blocks<Type>(at, a, b, 0, s);
        add_block<Type>(at, a, b, s, acc[n]);
      }
    } else {
      GroupSums sums[kSideBySide];
      for (int n = 0; n < groups; n++) sums[n] = {};
      TL_UNROLL for (int j = 0; j < kSubs; j += 2) {
        for (int n = 0; n < groups; n++) {
          const X16Block at = x16_block<Type>(group + size_t(n) * stride, b);
          if (alone) stream_ahead<Type>(at.words, j / 2, kSubs / 2);
          GroupSums s = sums[n];
          add_sub_blocks<Type>(at, a, b, j, s);
          sums[n] = s;
        }
      }
      for (int n = 0; n < groups; n++) add_block<Type>(x16_block<Type>(group + size_t(n) * stride, b), a, b, sums[n], acc[n]);
    }
  }
  for (int n = 0; n < groups; n++) {
    _mm256_storeu_ps(out + n * 16, acc[n][0]);
    _mm256_storeu_ps(out + n * 16 + 8, acc[n][1]);
  }
}

}  // namespace

const QuantSet quant_set_avx2 = {
#define TL_ROW(Type, name)                                                                         \
  .name = {Dtype::name, Type::kSub, Type::kOffset, Type::kMinAt >= 0, rows8<Type>, x16_rows<Type>, \
           {fill_plain<Type>, fill_x16<Type, Lanes256>}, &quant_set_avx2.name.own,                 \
           panel_tile<Shape<Type>, 1>, panel_tile<Shape<Type>, kTile>, nullptr},
    TL_INTEGER_TYPES(TL_ROW)
#undef TL_ROW
};

void quant_avx2(Table& t) {
  t.quantize = quantize;
  fill_rows<multiply, quant_set_avx2>(t);
}

}  // namespace tealight::kernels
