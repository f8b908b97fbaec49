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

// Keeps a sum in its register from here to the next use: compilers would rather gather all the products of one sum, then those of the
// next, with what they share on the stack (1.1 to 1.4 times the time).
inline void pin(__m256i& v) { asm volatile("" : "+x"(v)); }
#ifdef __clang__
constexpr bool kPin256 = false;  // which does well by itself where sums run over 256 values
#else
constexpr bool kPin256 = true;
#endif

// A panel, as two halves of 8 rows, times a tile of T tokens.
template <class Type, int T>
[[gnu::noinline]] void panel_tile(const Panel& p, int blocks, const ActTile* tile, float* y, size_t ldy, bool first) {
  const ActTile& a = *tile;
  constexpr int H = 2, B = Type::kBlock, kTogether = pairs_in_16_bits<Type>(), kSubs = B / Type::kSub;
  constexpr int kGroup = kTogether < Type::kSub / 4 ? kTogether : Type::kSub / 4;  // words between two widenings
  constexpr int kSubsEach = B == 32 ? 1 : 2;  // sub-blocks in one step: their scales lie in pairs
  constexpr bool kPinned = B == 32 || (kPin256 && Type::kSub == 32);
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
                if constexpr (kGroup == 1) {
                  S[h][t] = madd_add(S[h][t], m, k[h]);
                  pin(S[h][t]);
                } else {
                  s[h][t] = i == 0 ? m : _mm256_add_epi16(s[h][t], m);
                  if (kPinned) pin(s[h][t]);
                }
              }
            }
          }
          if constexpr (kGroup > 1)
            TL_UNROLL for (int h = 0; h < H; h++) TL_UNROLL for (int t = 0; t < T; t++) {
              S[h][t] = madd_add(S[h][t], s[h][t], k[h]);
              if (kPinned) pin(S[h][t]);
            }
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

// Eight rows of block b of a group: its lower or its upper half.
struct HalfGroup {
  const uint8_t *fields, *words;
};
template <class Type>
inline HalfGroup half_group(const uint8_t* group, int b, int half) {
  const X16Block at = x16_block<Type>(group, b);
  return {at.fields + half * 16, at.words + half * 32};
}
// f of both halves; one piece of code serves both where it is long.
template <bool twice, class F>
[[gnu::always_inline]] inline void halves(F f) {
  if constexpr (twice) f(0), f(1);
  else TL_ROLLED for (int h = 0; h < 2; h++) f(h);
}

// Adds to S[t] the products with token t, times the sub-scales, of a block of 32, or of sub-blocks 2 p and 2 p + 1.
template <class Type, int T>
[[gnu::always_inline]] inline void add_products(const HalfGroup& w, const ActTile* a, int b, int p, __m256i* S) {
  using L = Lanes256;
  constexpr int B = Type::kBlock, kTogether = pairs_in_16_bits<Type>(), kQuads = Type::kSub / 4;
  constexpr int kGroup = kTogether < kQuads ? kTogether : kQuads;  // words between two widenings
  __m256i scales;
  if constexpr (B == 256) scales = Type::template x16_scales<L>(w.fields, w.words, p);
  TL_UNROLL for (int e = 0; e < (B == 32 ? 1 : 2); e++) {
    const __m256i k = B == 32 ? _mm256_set1_epi16(1) : L::twice(scales, e);
    TL_UNROLL for (int g = 0; g < kQuads; g += kGroup) {
      __m256i part[T];
      TL_UNROLL for (int i = 0; i < kGroup; i++) {
        const int quad = (2 * p + e) * kQuads + g + i;
        const __m256i code = Type::template x16_codes<L>(w.words, quad);
        TL_UNROLL for (int t = 0; t < T; t++) {
          const __m256i m = pairs16<Type>(code, word(a[t].q + (b * (B / 4) + quad) * 4));
          part[t] = i == 0 ? m : _mm256_add_epi16(part[t], m);
        }
      }
      TL_UNROLL for (int t = 0; t < T; t++) S[t] = madd_add(S[t], part[t], k);
    }
  }
}

// The offset, the minimum and the float part of block b.
template <class Type, int T>
[[gnu::always_inline]] inline void add_block(const HalfGroup& w, const ActTile* a, int b, __m256i* S, __m256* acc) {
  using L = Lanes256;
  constexpr int B = Type::kBlock, kPairs = B / Type::kSub / 2;
  __m256i M[T], off[T];  // sums over sub-blocks of minimum, of sub-scale * (sum of q)
  TL_UNROLL for (int t = 0; t < T; t++) M[t] = off[t] = _mm256_setzero_si256();
  if constexpr (B == 256) {
    TL_ROLLED for (int p = 0; p < kPairs; p++) {
      __m256i scales, mins;
      if constexpr (Type::kOffset != 0) scales = Type::template x16_scales<L>(w.fields, w.words, p);
      if constexpr (Type::kMinAt >= 0) mins = Type::template x16_mins<L>(w.fields, w.words, p);
      TL_UNROLL for (int t = 0; t < T; t++) {
        const __m256i sums = word((Type::kSub == 16 ? a[t].sum16 : a[t].sum32) + (b * kPairs + p) * 2);
        if constexpr (Type::kOffset != 0) off[t] = madd_add(off[t], scales, sums);
        if constexpr (Type::kMinAt >= 0) M[t] = madd_add(M[t], mins, sums);
      }
    }
  }
  const __m256 d = L::half(w.fields, 0);
  __m256 least;
  if constexpr (Type::kMinAt >= 0) least = L::half(w.fields, 1);
  TL_UNROLL for (int t = 0; t < T; t++) {
    const __m256 dx = _mm256_set1_ps(a[t].dx[b]);
    if constexpr (B == 32 && Type::kOffset != 0) off[t] = _mm256_set1_epi32(a[t].sum[b]);
    if constexpr (Type::kOffset != 0) S[t] = _mm256_sub_epi32(S[t], _mm256_slli_epi32(off[t], __builtin_ctz(Type::kOffset)));
    acc[t] = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), _mm256_cvtepi32_ps(S[t]), acc[t]);
    if constexpr (Type::kMinAt >= 0) {
      if constexpr (B == 32) acc[t] = _mm256_fmadd_ps(least, _mm256_set1_ps(a[t].s[b]), acc[t]);
      else acc[t] = _mm256_fnmadd_ps(_mm256_mul_ps(least, dx), _mm256_cvtepi32_ps(M[t]), acc[t]);
    }
  }
}

// One group, prefetched by software, or up to kSideBySide, a few hundred bytes of each at a time. T tokens share each word of codes.
template <class Type, int T, bool alone>
[[gnu::noinline]] void x16_groups(const uint8_t* group, int groups, size_t stride, int blocks, const ActTile* a, float* out, size_t ldo) {
  constexpr int B = Type::kBlock, kPairs = B / Type::kSub / 2, kMost = alone ? 1 : kSideBySide;
  if (alone) groups = 1;
  __m256 acc[kMost][2][T];
  memset(acc, 0, sizeof acc);
  for (int b = 0; b < blocks; b++) {
    if constexpr (B == 32) {
      for (int n = 0; n < groups; n++) {
        const uint8_t* from = group + size_t(n) * stride;
        if (alone) stream_ahead<Type>(x16_block<Type>(from, b).words, 0, 1);
        halves<true>([&](int h) __attribute__((always_inline)) {
          __m256i S[T];
          TL_UNROLL for (int t = 0; t < T; t++) S[t] = _mm256_setzero_si256();
          add_products<Type, T>(half_group<Type>(from, b, h), a, b, 0, S);
          add_block<Type, T>(half_group<Type>(from, b, h), a, b, S, acc[n][h]);
        });
      }
    } else {
      __m256i sums[kMost][2][T];
      memset(sums, 0, sizeof sums);
      const auto pair = [&](int p) __attribute__((always_inline)) {
        for (int n = 0; n < groups; n++) {
          const uint8_t* from = group + size_t(n) * stride;
          if (alone) stream_ahead<Type>(x16_block<Type>(from, b).words, p, kPairs);
          halves<false>([&](int h) __attribute__((always_inline)) {
            __m256i S[T];
            TL_UNROLL for (int t = 0; t < T; t++) S[t] = sums[n][h][t];
            add_products<Type, T>(half_group<Type>(from, b, h), a, b, p, S);
            TL_UNROLL for (int t = 0; t < T; t++) sums[n][h][t] = S[t];
          });
        }
      };
      if constexpr (T == 1 && Type::kSub == 16 && Type::kMaxCode < 16) {
        TL_UNROLL for (int p = 0; p < kPairs; p++) pair(p);
      } else {
        TL_ROLLED for (int p = 0; p < kPairs; p++) pair(p);
      }
      for (int n = 0; n < groups; n++)
        TL_ROLLED for (int h = 0; h < 2; h++)
          add_block<Type, T>(half_group<Type>(group + size_t(n) * stride, b, h), a, b, sums[n][h], acc[n][h]);
    }
  }
  for (int n = 0; n < groups; n++)
    for (int h = 0; h < 2; h++)
      for (int t = 0; t < T; t++) _mm256_storeu_ps(out + size_t(t) * ldo + n * 16 + h * 8, acc[n][h][t]);
}

// Side by side where that is better (kernels/cpu/parts.h), but for streams so short that the processor's prefetching hardly begins, or
// whose lines are not visited in their order.
template <class Type, int T>
void x16_rows(const uint8_t* group, int groups, int blocks, const ActTile* a, float* out, size_t ldo) {
  constexpr size_t kLongStream = 8192;
  const size_t stride = 16 * x16_row_bytes(Type::kDtype, size_t(blocks) * Type::kBlock);
  if constexpr (!is_scattered<Type>())
    if (side_by_side && groups > 1 && stride >= kLongStream)
      return x16_groups<Type, T, false>(group, groups, stride, blocks, a, out, ldo);
  for (int n = 0; n < groups; n++) x16_groups<Type, T, true>(group + size_t(n) * stride, 1, stride, blocks, a, out + n * 16, ldo);
}

// Two tokens at once, but for rare types, which are not worth the code.
template <class Type>
constexpr QuantCode::Rows16 two_of() {
  if constexpr (Type::kDtype == Dtype::q5_1 || Type::kDtype == Dtype::q2_k || Type::kDtype == Dtype::q3_k) return nullptr;
  else return x16_rows<Type, 2>;
}

}  // namespace

const QuantSet quant_set_avx2 = {
#define TL_ROW(Type, name)                                                         \
  .name = {Dtype::name, Type::kSub, Type::kOffset, Type::kMinAt >= 0, rows8<Type>, \
           x16_rows<Type, 1>, two_of<Type>(),                                      \
           {fill_plain<Type>, fill_x16<Type, Lanes256>}, &quant_set_avx2.name.own, \
           panel_tile<Shape<Type>, 1>, panel_tile<Shape<Type>, kActTile>, nullptr},
    TL_INTEGER_TYPES(TL_ROW)
#undef TL_ROW
};

void quant_avx2(Table& t) {
  t.quantize = quantize;
  fill_rows<multiply, quant_set_avx2>(t);
}

}  // namespace tealight::kernels
