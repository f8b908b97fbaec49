// The layouts are those of GGUF (its reference reader is the Python package gguf, module quants). Each product is rounded in
// the order in which the format's readers write it, so that the values are equal and not only close.
#include "kernels/cpu/widen_rare.h"

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/iq_tables.h"

namespace tealight::kernels {
namespace {

uint16_t load16(const uint8_t* p) { return uint16_t(p[0] | p[1] << 8); }
uint32_t load32(const uint8_t* p) { return load16(p) | uint32_t(load16(p + 2)) << 16; }

float from_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

// IEEE binary16 to f32, exact; infinities and NaN stay what they are.
float from_f16(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
  if (exponent == 31) return from_bits(sign | 0x7f800000 | mantissa << 13);
  if (exponent == 0) {
    float tiny = float(mantissa) * 0x1p-24f;
    return sign ? -tiny : tiny;
  }
  return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

// out[i] = scale * value of code i, negated where bit i of `signs` is set.
template <int kCodes>
void expand(uint16_t word, const int8_t* values, float scale, uint8_t signs, float* out) {
  constexpr int bits = 16 / kCodes, mask = kCodes == 8 ? 3 : 7;
  for (int i = 0; i < kCodes; i++) {
    float v = scale * float(values[(word >> (bits * i)) & mask]);
    out[i] = (signs >> i) & 1 ? -v : v;
  }
}

// Eight values of IQ1: scale * (code + delta), code in {-1, 0, 1}.
void expand_iq1(uint16_t word, float scale, float delta, float* out) {
  for (int i = 0; i < 8; i++) out[i] = scale * (float(kIq1SValues[(word >> (2 * i)) & 3]) + delta);
}
constexpr float kIq1Delta = 0.125f;

// Doubled values of the 4-bit float E2M1 (OCP Microscaling Formats 1.0, table 5).
constexpr int8_t kE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace

// d (f16), qs[32], qh[8] (16 bits for 32 values: 4 x 3 high bits of the index, scale, sign of delta)
void widen_iq1_s(const void* src, float* dst, size_t n) {
  const uint8_t* b = static_cast<const uint8_t*>(src);
  for (; n; n -= 256, b += 50) {
    const float d = from_f16(load16(b));
    for (int g = 0; g < 8; g++) {
      uint16_t qh = load16(b + 34 + 2 * g);
      float scale = d * float(2 * ((qh >> 12) & 7) + 1), delta = qh & 0x8000 ? -kIq1Delta : kIq1Delta;
      for (int j = 0; j < 4; j++, dst += 8)
        expand_iq1(kIq1SGrid[b[2 + 4 * g + j] | ((qh >> (3 * j)) & 7) << 8], scale, delta, dst);
    }
  }
}

// qs[32], qh[16] (a nibble for 8 values: 3 high bits of the index, sign of delta), scales[4] (16 bits: 4 x 3 bits, and 4
// bits of d)
void widen_iq1_m(const void* src, float* dst, size_t n) {
  const uint8_t* b = static_cast<const uint8_t*>(src);
  for (; n; n -= 256, b += 56) {
    uint16_t d_bits = 0;
    for (int i = 0; i < 4; i++) d_bits = uint16_t(d_bits | (load16(b + 48 + 2 * i) >> 12) << (4 * i));
    const float d = from_f16(d_bits);
    for (int g = 0; g < 32; g++, dst += 8) {
      int sub = g / 2;   // 16 values share a scale
      float scale = d * float(2 * ((load16(b + 48 + 2 * (sub / 4)) >> (3 * (sub % 4))) & 7) + 1);
      int qh = b[32 + g / 2] >> (4 * (g % 2));
      expand_iq1(kIq1SGrid[b[g] | (qh & 7) << 8], scale, qh & 8 ? -kIq1Delta : kIq1Delta, dst);
    }
  }
}

// d (f16), then for 32 values: 4 indices of 8 bits, 4 sign words of 7 bits, scale of 4 bits
void widen_iq2_xxs(const void* src, float* dst, size_t n) {
  const uint8_t* b = static_cast<const uint8_t*>(src);
  for (; n; n -= 256, b += 66) {
    const float d = from_f16(load16(b));
    for (int g = 0; g < 8; g++) {
      const uint8_t* q = b + 2 + 8 * g;
      uint32_t high = load32(q + 4);
      float scale = d * (0.5f + float(high >> 28)) * 0.25f;
      for (int j = 0; j < 4; j++, dst += 8)
        expand<8>(kIq2XxsGrid[q[j]], kIq2XxsValues, scale, kSigns[(high >> (7 * j)) & 127], dst);
    }
  }
}

// d (f16), qs[32] (16 bits for 8 values: index of 9 bits, sign word of 7), scales[8] (a nibble for 16 values)
void widen_iq2_xs(const void* src, float* dst, size_t n) {
  const uint8_t* b = static_cast<const uint8_t*>(src);
  for (; n; n -= 256, b += 74) {
    const float d = from_f16(load16(b));
    for (int g = 0; g < 32; g++, dst += 8) {
      uint16_t q = load16(b + 2 + 2 * g);
      float scale = d * (0.5f + float((b[66 + g / 4] >> (4 * (g / 2 % 2))) & 15)) * 0.25f;
      expand<8>(kIq2XsGrid[q & 511], kIq2XsValues, scale, kSigns[q >> 9], dst);
    }
  }
}

// d (f16), qs[32], signs[32], qh[8] (2 bits for 8 values), scales[8] (a nibble for 16 values)
void widen_iq2_s(const void* src, float* dst, size_t n) {
  const uint8_t* b = static_cast<const uint8_t*>(src);
  for (; n; n -= 256, b += 82) {
    const float d = from_f16(load16(b));
    for (int g = 0; g < 32; g++, dst += 8) {
      float scale = d * (0.5f + float((b[74 + g / 4] >> (4 * (g / 2 % 2))) & 15)) * 0.25f;
      int index = b[2 + g] | ((b[66 + g / 4] >> (2 * (g % 4))) & 3) << 8;
      expand<8>(kIq2SGrid[index], kIq2SValues, scale, b[34 + g], dst);
    }
  }
}

// d (f16), qs[64] (an index for 4 values), then for 32 values: 4 sign words of 7 bits, scale of 4 bits
void widen_iq3_xxs(const void* src, float* dst, size_t n) {
  const uint8_t* b = static_cast<const uint8_t*>(src);
  for (; n; n -= 256, b += 98) {
    const float d = from_f16(load16(b));
    for (int g = 0; g < 8; g++) {
      uint32_t high = load32(b + 66 + 4 * g);
      float scale = d * (0.5f + float(high >> 28)) * 0.5f;
      for (int j = 0; j < 8; j++, dst += 4) {
        uint8_t signs = uint8_t(kSigns[(high >> (7 * (j / 2))) & 127] >> (4 * (j % 2)));
        expand<4>(kIq3XxsGrid[b[2 + 8 * g + j]], kIq3XxsValues, scale, signs, dst);
      }
    }
  }
}

// d (f16), qs[64], qh[8] (a bit for 4 values), signs[32], scales[4] (a nibble for 32 values)
void widen_iq3_s(const void* src, float* dst, size_t n) {
  const uint8_t* b = static_cast<const uint8_t*>(src);
  for (; n; n -= 256, b += 110) {
    const float d = from_f16(load16(b));
    for (int g = 0; g < 64; g++, dst += 4) {
      float scale = d * float(1 + 2 * ((b[106 + g / 16] >> (4 * (g / 8 % 2))) & 15));
      int index = b[2 + g] | ((b[66 + g / 8] >> (g % 8)) & 1) << 8;
      expand<4>(kIq3SGrid[index], kIq3SValues, scale, uint8_t(b[74 + g / 2] >> (4 * (g % 2))), dst);
    }
  }
}

// qs[48] (5 ternary digits a byte: 32 bytes x 5, then 16 x 5), qh[4] (4 digits a byte), d (f16). A byte is the number's
// fraction of 243, scaled to 256: multiplied by 3^i (mod 256), its leading ternary digit is byte * 3 >> 8.
void widen_tq1_0(const void* src, float* dst, size_t n) {
  static constexpr struct {
    uint8_t first, bytes, digits;
  } parts[] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
  const uint8_t* b = static_cast<const uint8_t*>(src);
  for (; n; n -= 256, b += 54) {
    const float d = from_f16(load16(b + 52));
    for (const auto& part : parts) {
      int power = 1;
      for (int digit = 0; digit < part.digits; digit++, power *= 3)
        for (int i = 0; i < part.bytes; i++) *dst++ = d * float((uint8_t(b[part.first + i] * power) * 3 >> 8) - 1);
    }
  }
}

// qs[64] (4 codes of 2 bits a byte, 32 bytes give 128 values), d (f16)
void widen_tq2_0(const void* src, float* dst, size_t n) {
  const uint8_t* b = static_cast<const uint8_t*>(src);
  for (; n; n -= 256, b += 66) {
    const float d = from_f16(load16(b + 64));
    for (int half = 0; half < 64; half += 32)
      for (int shift = 0; shift < 8; shift += 2)
        for (int i = 0; i < 32; i++) *dst++ = d * float(((b[half + i] >> shift) & 3) - 1);
  }
}

// e (exponent E8M0), qs[16] (low nibbles first)
void widen_mxfp4(const void* src, float* dst, size_t n) {
  const uint8_t* b = static_cast<const uint8_t*>(src);
  for (; n; n -= 32, b += 17, dst += 32) {
    const uint32_t e = b[0];   // half of 2^(e - 127), since the values are doubled
    const float d = from_bits(e < 2 ? uint32_t(0x00200000) << e : (e - 1) << 23);
    for (int i = 0; i < 16; i++) {
      dst[i] = d * float(kE2m1[b[1 + i] & 15]);
      dst[16 + i] = d * float(kE2m1[b[1 + i] >> 4]);
    }
  }
}

// d[4] (unsigned E4M3, a scale for 16 values), qs[32] (8 bytes for 16 values, low nibbles first)
void widen_nvfp4(const void* src, float* dst, size_t n) {
  const uint8_t* b = static_cast<const uint8_t*>(src);
  for (; n; n -= 64, b += 36)
    for (int g = 0; g < 4; g++, dst += 16) {
      const uint32_t s = b[g], exponent = (s >> 3) & 15, mantissa = s & 7;
      float d = exponent ? (1.0f + float(mantissa) / 8) * from_bits((exponent + 120) << 23) : float(mantissa) * 0x1p-9f;
      d = s == 0x7f ? 0 : d * 0.5f;   // the values are doubled; 0x7f is NaN and counts as 0
      for (int i = 0; i < 8; i++) {
        uint8_t q = b[4 + 8 * g + i];
        dst[i] = d * float(kE2m1[q & 15]);
        dst[8 + i] = d * float(kE2m1[q >> 4]);
      }
    }
}

}  // namespace tealight::kernels
