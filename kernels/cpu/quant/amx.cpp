// Integer products with AMX tiles: tdpbssd adds the products of 16 tokens' signed bytes with 16 rows' in 16 x 16 sums of 32 bits.
//   32 family    a tile product for each block of 32 values, then the floating part for its 256 sums
//   256 family   weights are multiplied by their sub-scales beforehand and split into two signed bytes, 64 high + low, so that
//                the sums of all 256 values of a block come about inside two tiles
// Sums are exact, hence the same bits as everywhere. Few tokens, and the unpacking of weights, are avx512's.
#include "kernels/cpu/vec/avx512.h"
#include "kernels/cpu/parts.h"
#include "kernels/cpu/quant/multiply.h"

namespace tealight::kernels {
namespace {

// 64 high + low with signed bytes, low in 0..63, reaches -8192 to 8191.
template <class Type>
constexpr bool can_split() {
  if constexpr (Type::kBlock == 32) return Type::kMaxCode < 128;  // as it is
  else {
    constexpr int below = Type::kMaxCode == 0 ? 128 : Type::kOffset, above = Type::kMaxCode == 0 ? 127 : Type::kMaxCode - Type::kOffset;
    return (below > above ? below : above) * Type::kMaxScale < 8192;
  }
}
#define TL_ROW(Type, name) static_assert(can_split<Type>());
TL_INTEGER_TYPES(TL_ROW)
#undef TL_ROW

// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, zero[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0 to 3: sums of 16 tokens (down) and 16 rows; 4 and 5: 16 tokens of k values; 6 and 7: k / 4 words of 16 rows.
void configure(int k) {
  TileConfig c;
  for (int i = 0; i < 8; i++) {
    c.row_bytes[i] = uint16_t(i == 4 || i == 5 ? k : 64);
    c.rows[i] = uint8_t(i < 6 ? 16 : k / 4);
  }
  __asm__ volatile("" : : "r"(&c) : "memory");  // compilers may take the operand for 8 bytes and leave out the others' stores
  _tile_loadconfig(&c);
}

// 16 tokens of a piece of K, zeros beyond the last token.
//   q        int8 [K / k][16][k]       k = 32 or 64
//   dx       float [blocks][16]
//   and in words of 32 bits, by blocks of 32: s, or sum times the offset [blocks][16], or by blocks of 256 where there is a
//   minimum: sums by pairs [blocks][pairs][16]
struct Tokens {
  int8_t* q;
  float* dx;
  uint32_t* more;
};
Tokens tokens_in(uint8_t* at, int values, int block) {
  Tokens a{};
  a.q = reinterpret_cast<int8_t*>(at);
  a.dx = reinterpret_cast<float*>(at + size_t(values) * 16);
  a.more = reinterpret_cast<uint32_t*>(a.dx + values / block * 16);
  return a;
}

// Four tokens' words of 4 bytes, [values / 4][4], as rows of k bytes.
void rows_of_four(const int8_t* q, int values, int k, int8_t* to) {
  for (int i = 0; i < values; i += 16, q += 64) {
    const __m128i a = load128(q), b = load128(q + 16), c = load128(q + 32), d = load128(q + 48);
    const __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d);
    const __m128i ab2 = _mm_unpackhi_epi32(a, b), cd2 = _mm_unpackhi_epi32(c, d);
    const __m128i row[4] = {_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd), _mm_unpacklo_epi64(ab2, cd2),
                            _mm_unpackhi_epi64(ab2, cd2)};
    int8_t* at = to + i / k * k * 16 + i % k;
    for (int t = 0; t < 4; t++) _mm_storeu_si128(reinterpret_cast<__m128i*>(at + t * k), row[t]);
  }
}

// Lays out tokens t .. t + 15 of blocks b .. b + blocks - 1.
void pack(const QuantCode& code, const Matmul& m, int t, int b, int blocks, const Tokens& to) {
  const Family family = info(code.type).family;
  const bool large = family == Family::block256;
  const int B = large ? 256 : 32, values = blocks * B, k = large ? 64 : 32, pairs = B / code.sub / 2;
  const int count = min_int(16, m.T - t);
  for (int i = 0; i < count;) {
    const int n = count - i >= kActTile ? kActTile : 1;
    const ActTile a = tile_from(family, m.act, m.K, t + i, n, b);
    if (n == kActTile) rows_of_four(a.q, values, k, to.q + i * k);
    else for (int j = 0; j < values; j += k) memcpy(to.q + j * 16 + i * k, a.q + j, size_t(k));
    for (int j = 0; j < n; j++, i++) {
      for (int block = 0; block < blocks; block++) {
        const int at = block * n + j;
        to.dx[block * 16 + i] = a.dx[at];
        if (large) {
          const int16_t* sums = code.sub == 16 ? a.sum16 : a.sum32;
          for (int p = block * pairs; code.min && p < (block + 1) * pairs; p++) memcpy(to.more + p * 16 + i, sums + (p * n + j) * 2, 4);
        } else {
          to.more[block * 16 + i] = code.min ? bits(a.s[at]) : uint32_t(a.sum[at] * code.offset);
        }
      }
    }
  }
  for (int i = count; i < 16; i++) {
    for (int j = 0; j < values; j += k) memset(to.q + j * 16 + i * k, 0, size_t(k));
    for (int block = 0; block < blocks; block++) to.dx[block * 16 + i] = 0;
    for (int j = 0; j < blocks * (large ? pairs : 1); j++) to.more[j * 16 + i] = 0;
  }
}

// Where sums go: 16 rows of `tokens` tokens from y on, of which `rows` exist.
struct Output {
  float* y;
  size_t ldy;
  int tokens, rows;
  bool first;  // nothing is there yet
};
inline __mmask16 lanes(int rows) { return __mmask16((1u << rows) - 1); }

enum class Beside { nothing, offset, min };

// A panel of blocks of 32 times 16 tokens.
template <Beside beside>
[[gnu::noinline]] void times_tokens32(const Panel& p, int blocks, const Tokens& a, const Output& out) {
  alignas(64) int32_t sums[2][4][256];  // of four blocks, made while those of the last four are used
  __m512 acc[16];
  TL_UNROLL for (int t = 0; t < 16; t++)
    acc[t] = out.first || t >= out.tokens ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(lanes(out.rows), out.y + size_t(t) * out.ldy);
  const auto products = [&](int b) {
    const uint8_t* w = p.code + b * 512;
    const int8_t* q = a.q + b * 512;
    const int n = blocks - b;
    int32_t(*to)[256] = sums[b / 4 % 2];
#define TL_PRODUCT(i, tokens, rows)        \
  if (n > i) {                             \
    _tile_zero(i);                         \
    _tile_loadd(tokens, q + i * 512, 32);  \
    _tile_loadd(rows, w + i * 512, 64);    \
    _tile_dpbssd(i, tokens, rows);         \
  }
    TL_PRODUCT(0, 4, 6)
    TL_PRODUCT(1, 5, 7)
    TL_PRODUCT(2, 4, 6)
    TL_PRODUCT(3, 5, 7)
#undef TL_PRODUCT
    if (n > 0) _tile_stored(0, to[0], 64);
    if (n > 1) _tile_stored(1, to[1], 64);
    if (n > 2) _tile_stored(2, to[2], 64);
    if (n > 3) _tile_stored(3, to[3], 64);
  };
  products(0);
  for (int b = 0; b < blocks; b++) {
    if (b % 4 == 0) products(b + 4);
    const int32_t* sum = sums[b / 4 % 2][b % 4];
    const float* dx = a.dx + b * 16;
    const uint32_t* more = a.more + b * 16;
    const __m512 d = _mm512_loadu_ps(p.d + b * 16);
    TL_UNROLL for (int t = 0; t < 16; t++) {
      __m512i I = _mm512_loadu_si512(sum + t * 16);
      if constexpr (beside == Beside::offset) I = _mm512_sub_epi32(I, _mm512_set1_epi32(int(more[t])));
      acc[t] = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(dx[t])), _mm512_cvtepi32_ps(I), acc[t]);
    }
    if constexpr (beside == Beside::min) {
      const __m512 least = _mm512_loadu_ps(p.m + b * 16);
      TL_UNROLL for (int t = 0; t < 16; t++) acc[t] = _mm512_fmadd_ps(least, _mm512_set1_ps(from_bits(more[t])), acc[t]);
    }
  }
  TL_UNROLL for (int t = 0; t < 16; t++)
    if (t < out.tokens) _mm512_mask_storeu_ps(out.y + size_t(t) * out.ldy, lanes(out.rows), acc[t]);
}

// A panel's weights times their sub-scales: for each 64 values of k a tile of the high bytes, then one of the low ones.
void split(const QuantCode& code, const Panel& p, int blocks, uint8_t* to) {
  const __m512i byte = _mm512_set1_epi32(0xff00ff), six = _mm512_set1_epi32(0x3f003f), half = _mm512_set1_epi32(0xffff);
  const __m512i offset = _mm512_set1_epi32(code.offset * 0x01010101);
  const int words = code.sub / 4;
  for (int i = 0; i < blocks * 64; i++) {  // words of each row
    const __m512i pair = _mm512_loadu_si512(p.sc + i / words / 2 * 32);
    const __m512i first = _mm512_and_si512(i / words % 2 ? _mm512_srli_epi32(pair, 16) : pair, half);
    const __m512i scale = _mm512_or_si512(first, _mm512_slli_epi32(first, 16));
    const __m512i w = _mm512_sub_epi8(_mm512_loadu_si512(p.code + i * 64), offset);
    const __m512i even = _mm512_mullo_epi16(_mm512_srai_epi16(_mm512_slli_epi16(w, 8), 8), scale);
    const __m512i odd = _mm512_mullo_epi16(_mm512_srai_epi16(w, 8), scale);
    uint8_t* at = to + i / 16 * 2048 + i % 16 * 64;
    _mm512_storeu_si512(at, _mm512_or_si512(_mm512_and_si512(_mm512_srai_epi16(even, 6), byte), _mm512_slli_epi16(_mm512_srai_epi16(odd, 6), 8)));
    _mm512_storeu_si512(at + 1024, _mm512_or_si512(_mm512_and_si512(even, six), _mm512_slli_epi16(_mm512_and_si512(odd, six), 8)));
  }
}

// A split panel of blocks of 256 times 16 tokens, or 32 (out.tokens > 16); `pairs` of sums and minima a block.
template <int pairs>
[[gnu::noinline]] void times_tokens256(const Panel& p, const uint8_t* w, int blocks, const Tokens* a, const Output& out) {
  alignas(64) int32_t sums[2][4][256];  // of high and low bytes with the first 16 tokens, then the others; of this block and the last
  alignas(64) float acc[32][16];
  const bool two = out.tokens > 16;
  for (int t = 0; t < out.tokens; t++)
    _mm512_storeu_ps(acc[t], out.first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(lanes(out.rows), out.y + size_t(t) * out.ldy));
  for (int b = 0; b < blocks; b++) {
    int32_t(*to)[256] = sums[b % 2];
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int i = b * 4; i < b * 4 + 4; i++) {
      _tile_loadd(6, w + i * 2048, 64);
      _tile_loadd(4, a[0].q + i * 1024, 64);
      _tile_dpbssd(0, 4, 6);
      _tile_loadd(7, w + i * 2048 + 1024, 64);
      _tile_dpbssd(1, 4, 7);
      if (!two) continue;
      _tile_loadd(5, a[1].q + i * 1024, 64);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, to[0], 64);
    _tile_stored(1, to[1], 64);
    if (two) {
      _tile_stored(2, to[2], 64);
      _tile_stored(3, to[3], 64);
    }
    const __m512 d = _mm512_loadu_ps(p.d + b * 16);
    __m512 least = d;
    if constexpr (pairs != 0) least = _mm512_loadu_ps(p.m + b * 16);
    for (int t = 0; t < out.tokens; t++) {
      const Tokens& of = a[t / 16];
      const int32_t* sum = to[t / 16 * 2] + t % 16 * 16;
      const __m512 dx = _mm512_set1_ps(of.dx[b * 16 + t % 16]);
      const __m512i S = _mm512_add_epi32(_mm512_slli_epi32(_mm512_loadu_si512(sum), 6), _mm512_loadu_si512(sum + 256));
      __m512 v = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), _mm512_cvtepi32_ps(S), _mm512_loadu_ps(acc[t]));
      if constexpr (pairs != 0) {
        __m512i M = _mm512_setzero_si512();
        TL_UNROLL for (int i = b * pairs; i < (b + 1) * pairs; i++)
          M = _mm512_dpwssd_epi32(M, _mm512_loadu_si512(p.mn + i * 32), _mm512_set1_epi32(int(of.more[i * 16 + t % 16])));
        v = _mm512_fnmadd_ps(_mm512_mul_ps(least, dx), _mm512_cvtepi32_ps(M), v);
      }
      _mm512_storeu_ps(acc[t], v);
    }
  }
  for (int t = 0; t < out.tokens; t++) _mm512_mask_storeu_ps(out.y + size_t(t) * out.ldy, lanes(out.rows), _mm512_loadu_ps(acc[t]));
}

void multiply_tiles(const QuantCode& code, bool x16, const Matmul& m) {
  if (m.T < kAmxFewest) return multiply(code, x16, m);
  const int B = info(code.type).block, step = B == 256 ? 32 : 16, piece = kIntPiece / B, blocks = m.K / B;
  const int values = min_int(m.K, kIntPiece), some = amx_tokens(values);  // tokens that are laid out at a time
  const auto times32 = code.min      ? times_tokens32<Beside::min>
                       : code.offset ? times_tokens32<Beside::offset>
                                     : times_tokens32<Beside::nothing>;
  const auto times256 = !code.min ? times_tokens256<0> : code.sub == 32 ? times_tokens256<4> : times_tokens256<8>;
  const Panel p = panel_in(m.scratch, B);
  uint8_t* parts = static_cast<uint8_t*>(m.scratch) + kIntScratch;
  uint8_t* laid_out = parts + kAmxSplit;
  const size_t each = amx_bytes(values, 16);
  configure(B == 256 ? 64 : 32);
  for (int t0 = 0; t0 < m.T; t0 += some)
    for (int b = 0; b < blocks; b += piece) {
      const int n = min_int(piece, blocks - b), t1 = min_int(m.T, t0 + some);
      for (int t = t0; t < t1; t += 16) pack(code, m, t, b, n, tokens_in(laid_out + size_t((t - t0) / 16) * each, n * B, B));
      for (int r = m.r0; r < m.r1; r += 16) {
        unpack(code, x16, m, r, b, n, p);
        if (B == 256) split(code, p, n, parts);
        __asm__ volatile("" ::: "memory");  // compilers may not know that tiles read memory
        for (int t = t0; t < t1; t += step) {
          uint8_t* at = laid_out + size_t((t - t0) / 16) * each;
          const Tokens a[2] = {tokens_in(at, n * B, B), tokens_in(at + each, n * B, B)};
          const Output out = {m.y + size_t(t) * m.ldy + r, m.ldy, min_int(step, t1 - t), min_int(16, m.r1 - r), b == 0};
          if (B == 256) times256(p, parts, n, a, out);
          else times32(p, n, a[0], out);
        }
      }
    }
  _tile_release();
}

}  // namespace

void quant_amx(Table& t) {
  quant_avx512(t);
  fill_rows<multiply_tiles, quant_set_avx512>(t);
}

}  // namespace tealight::kernels
