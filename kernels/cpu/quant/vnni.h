// Panels and groups of rows times tokens with vpdpbusd (u8 * s8, four products added in 32 bits, exact), on registers of any
// width. Signed codes become unsigned by adding 128, which the sums of the activations take back.
// Include after the set's Lanes.
#pragma once
#include "kernels/cpu/quant/multiply.h"
#include "kernels/cpu/quant/x16.h"

namespace tealight::kernels {
namespace {

// Four bytes, or two 16-bit numbers, in every lane.
template <class L>
inline typename L::V word(const void* p) {
  int32_t v;
  memcpy(&v, p, 4);
  return L::set(v);
}

// What is taken from a code that vpdpbusd reads as unsigned.
template <class Type>
constexpr int bias() { return Type::kMaxCode == 0 ? 128 : Type::kOffset; }
// A sum of 16 products that fits 16 bits is multiplied by its sub-scale with vpdpwssd, else of a sub-block with vpmulld.
template <class Type>
constexpr bool is_narrow() { return Type::kBlock == 256 && Type::kMaxCode != 0 && Type::kMaxCode * 127 * 16 < 32768; }
// The first (e = 0) or the second of a pair of sub-scales, for that multiplication.
template <class L, bool kNarrow>
inline typename L::V sub_scale(typename L::V pair, int e) {
  if (kNarrow) return e ? L::right(pair, 16) : L::bit_and(pair, L::set(0xffff));
  return L::right_signed(e ? pair : L::left(pair, 16), 16);
}

// A panel times T tokens: one of a tile of one, or those of T / 4 neighbouring tiles.
template <class Type, class L, int T>
[[gnu::noinline]] void panel_tile(const Panel& p, int blocks, const ActTile* a, float* y, size_t ldy, bool first) {
  using V = typename L::V;
  using F = typename L::F;
  constexpr int H = L::kParts, kLanes = 16 / H, B = Type::kBlock, kSubs = B / Type::kSub, n = T == 1 ? 1 : kActTile;
  constexpr int kSubsEach = B == 32 ? 1 : 2;  // sub-blocks in one step: their scales lie in pairs
  constexpr bool kNarrow = is_narrow<Type>();
  constexpr int kGroup = kNarrow ? 4 : Type::kSub / 4;  // words between two multiplications by the sub-scale
  const V flip = L::set(int(0x80808080));
  F acc[H][T];
  TL_UNROLL for (int h = 0; h < H; h++) TL_UNROLL for (int t = 0; t < T; t++)
    acc[h][t] = first ? L::real(0) : L::load_real(y + size_t(t) * ldy + h * kLanes);
  const uint8_t* code = p.code;
  const int16_t* scales = p.sc;
  int at = 0;  // of the activations
  for (int b = 0; b < blocks; b++) {
    V S[H][T];
    TL_UNROLL for (int h = 0; h < H; h++) TL_UNROLL for (int t = 0; t < T; t++) S[h][t] = L::set(0);
    for (int j = 0; j < kSubs; j += kSubsEach) {
      TL_UNROLL for (int e = 0; e < kSubsEach; e++) {
        V k[H];
        TL_UNROLL for (int h = 0; h < H; h++)
          if constexpr (B == 256) k[h] = sub_scale<L, kNarrow>(L::load(scales + h * kLanes * 2), e);
        TL_UNROLL for (int g = 0; g < Type::kSub / 4; g += kGroup) {
          V s[H][T];
          TL_UNROLL for (int h = 0; h < H; h++) TL_UNROLL for (int t = 0; t < T; t++) s[h][t] = L::set(0);
          TL_UNROLL for (int i = 0; i < kGroup; i++) {
            const int quad = e * Type::kSub / 4 + g + i;
            V v[H];
            TL_UNROLL for (int h = 0; h < H; h++) {
              v[h] = L::load(code + quad * 64 + h * kLanes * 4);
              if (Type::kMaxCode == 0) v[h] = L::bit_xor(v[h], flip);
            }
            TL_UNROLL for (int t = 0; t < T; t++) {
              const V x = word<L>(a[t / n].q + at + (quad * n + t % n) * 4);
              TL_UNROLL for (int h = 0; h < H; h++) s[h][t] = L::dot(s[h][t], v[h], x);
            }
          }
          TL_UNROLL for (int h = 0; h < H; h++) TL_UNROLL for (int t = 0; t < T; t++) {
            if constexpr (B == 32) S[h][t] = s[h][t];
            else if constexpr (kNarrow) S[h][t] = L::pairs(S[h][t], s[h][t], k[h]);
            else S[h][t] = L::add(S[h][t], L::mul(s[h][t], k[h]));
          }
        }
      }
      code += kSubsEach * Type::kSub * 16;
      at += kSubsEach * Type::kSub * n;
      scales += 32;
    }
    TL_UNROLL for (int h = 0; h < H; h++) {
      const F d = L::load_real(p.d + b * 16 + h * kLanes);
      F least;
      if constexpr (Type::kMin) least = L::load_real(p.m + b * 16 + h * kLanes);
      TL_UNROLL for (int t = 0; t < T; t++) {
        const ActTile& tile = a[t / n];
        const int token = b * n + t % n;
        const F dx = L::real(tile.dx[token]);
        // sum over sub-blocks of v * (sum of q), by pairs
        const auto with_sums = [&](const int16_t* v) {
          V sum = L::set(0);
          const int16_t* q = Type::kSub == 16 ? tile.sum16 : tile.sum32;
          TL_UNROLL for (int i = 0; i < kSubs / 2; i++) {
            const int pair = b * kSubs / 2 + i;
            sum = L::pairs(sum, L::load(v + pair * 32 + h * kLanes * 2), word<L>(q + (pair * n + t % n) * 2));
          }
          return sum;
        };
        if constexpr (bias<Type>() != 0) {
          const V all = B == 32 ? L::set(tile.sum[token]) : with_sums(p.sc);
          S[h][t] = L::sub(S[h][t], L::left(all, __builtin_ctz(unsigned(bias<Type>()))));
        }
        acc[h][t] = L::fma(L::mul(d, dx), L::to_real(S[h][t]), acc[h][t]);
        if constexpr (Type::kMin) {
          if constexpr (B == 32) acc[h][t] = L::fma(least, L::real(tile.s[token]), acc[h][t]);
          else acc[h][t] = L::fnma(L::mul(least, dx), L::to_real(with_sums(p.mn)), acc[h][t]);
        }
      }
    }
  }
  TL_UNROLL for (int h = 0; h < H; h++) TL_UNROLL for (int t = 0; t < T; t++)
    L::store(y + size_t(t) * ldy + h * kLanes, acc[h][t]);
}

template <class Type, class L>
[[gnu::noinline]] void x16_group(const uint8_t* group, int blocks, const ActTile& a, float* out) {
  using V = typename L::V;
  using F = typename L::F;
  constexpr int H = L::kParts, kLanes = 16 / H, B = Type::kBlock, kSubs = B / Type::kSub, kQuads = Type::kSub / 4;
  constexpr int kSubsEach = B == 32 ? 1 : 2;  // their scales lie in pairs
  constexpr int kBias = bias<Type>(), kChains = H == 1 ? 2 : 1;
  constexpr bool kNarrow = is_narrow<Type>();
  constexpr int kGroup = kNarrow ? 4 : kQuads;
  const V flip = L::set(int(0x80808080));
  F acc[H];
  TL_UNROLL for (int h = 0; h < H; h++) acc[h] = L::real(0);
  const int8_t* q = a.q;
  for (int b = 0; b < blocks; b++, q += B) {
    const X16Block at = x16_block<Type>(group, b);
    const uint8_t *w[H], *f[H];
    // S: sum of sub-scale * (sum of code * q), in up to two chains; off, M: of sub-scale, minimum * (sum of q)
    V S[H][2], off[H], M[H];
    TL_UNROLL for (int h = 0; h < H; h++) {
      w[h] = at.words + h * kLanes * 4, f[h] = at.fields + h * kLanes * 2;
      S[h][0] = S[h][1] = off[h] = M[h] = L::set(0);
    }
    TL_UNROLL for (int j = 0; j < kSubs; j += kSubsEach) {
      V scales[H];
      if constexpr (B == 256) {
        const V sums = word<L>((Type::kSub == 16 ? a.sum16 : a.sum32) + b * kSubs + j);
        TL_UNROLL for (int h = 0; h < H; h++) {
          scales[h] = Type::template x16_scales<L>(f[h], w[h], j / 2);
          if constexpr (kBias != 0) off[h] = L::pairs(off[h], scales[h], sums);
          if constexpr (Type::kMinAt >= 0) M[h] = L::pairs(M[h], Type::template x16_mins<L>(f[h], w[h], j / 2), sums);
        }
      }
      TL_UNROLL for (int e = 0; e < kSubsEach; e++) {
        stream_ahead<Type>(at.words, j + e, kSubs);
        TL_UNROLL for (int g = 0; g < kQuads; g += kGroup) {
          V s[H];
          TL_UNROLL for (int h = 0; h < H; h++) s[h] = L::set(0);
          TL_UNROLL for (int i = 0; i < kGroup; i++) {
            const int quad = (j + e) * kQuads + g + i;
            const V x = word<L>(q + quad * 4);
            TL_UNROLL for (int h = 0; h < H; h++) {
              V v = Type::template x16_codes<L>(w[h], quad);
              if (Type::kMaxCode == 0) v = L::bit_xor(v, flip);
              if constexpr (B == 32) S[h][i % kChains] = L::dot(S[h][i % kChains], v, x);
              else s[h] = L::dot(s[h], v, x);
            }
          }
          TL_UNROLL for (int h = 0; h < H; h++) {
            V& to = S[h][(kNarrow ? e + g / kGroup : e) % kChains];
            if constexpr (kNarrow) to = L::pairs(to, s[h], sub_scale<L, kNarrow>(scales[h], e));
            else if constexpr (B == 256) to = L::add(to, L::mul(s[h], sub_scale<L, kNarrow>(scales[h], e)));
          }
        }
      }
    }
    const F dx = L::real(a.dx[b]);
    TL_UNROLL for (int h = 0; h < H; h++) {
      V I = kChains == 1 ? S[h][0] : L::add(S[h][0], S[h][1]);
      if constexpr (B == 32 && kBias != 0) off[h] = L::set(a.sum[b]);
      if constexpr (kBias != 0) I = L::sub(I, L::left(off[h], __builtin_ctz(unsigned(kBias))));
      acc[h] = L::fma(L::mul(L::half(f[h], 0), dx), L::to_real(I), acc[h]);
      if constexpr (Type::kMinAt >= 0) {
        const F least = L::half(f[h], 1);
        if constexpr (B == 32) acc[h] = L::fma(least, L::real(a.s[b]), acc[h]);
        else acc[h] = L::fnma(L::mul(least, dx), L::to_real(M[h]), acc[h]);
      }
    }
  }
  TL_UNROLL for (int h = 0; h < H; h++) L::store(out + h * kLanes, acc[h]);
}

// One after the other: the prefetch of one stream keeps the memory busy.
template <class Type, class L>
void x16_rows(const uint8_t* group, int groups, int blocks, const ActTile* a, float* out, size_t) {
  for (int i = 0; i < groups; i++) x16_group<Type, L>(group + size_t(i) * 16 * x16_row_bytes(Type::kDtype, size_t(blocks) * Type::kBlock), blocks, *a, out + i * 16);
}

}  // namespace
}  // namespace tealight::kernels
