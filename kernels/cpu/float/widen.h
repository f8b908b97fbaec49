// Any type to f32, in the order of operations of the formats' own definition:
//   32 family   d * w (+ m)        256 family   (d * scale) * w (- dmin * min)
#pragma once
#include "kernels/cpu/types/types.h"
#include "kernels/cpu/widen_rare.h"

namespace tealight::kernels {
namespace {

void widen_f32(const void* src, float* dst, size_t n) { memcpy(dst, src, n * 4); }
void widen_bf16(const void* src, float* dst, size_t n) {
  for (size_t i = 0; i < n; i++) dst[i] = bf16_to_f32(load_u16(static_cast<const uint8_t*>(src) + 2 * i));
}

template <class Type>
void widen(const void* src, float* dst, size_t n) {
  const uint8_t* block = static_cast<const uint8_t*>(src);
  for (size_t i = 0; i < n; i += Type::kBlock, block += Type::kBytes, dst += Type::kBlock) {
    int8_t code[Type::kBlock];
    int16_t scale[16], least[16];
    Type::codes(block, code);
    if constexpr (Type::kBlock == 256) Type::scales(block, scale, least);
    const float d = load_f16(block + Type::kScaleAt), m = Type::kMinAt < 0 ? 0.0f : load_f16(block + Type::kMinAt);
    for (int j = 0; j < Type::kBlock / Type::kSub; j++) {
      const float dj = Type::kBlock == 256 ? d * float(scale[j]) : d;
      const float mj = Type::kMinAt < 0 ? 0.0f : Type::kBlock == 256 ? -(m * float(least[j])) : m;
      for (int k = j * Type::kSub; k < (j + 1) * Type::kSub; k++) {
        const float v = dj * float(code[k] - Type::kOffset);
        dst[k] = Type::kMinAt < 0 ? v : v + mj;
      }
    }
  }
}

// The types of Family::decode: X(dtype, function).
#define TL_DECODE_TYPES(X) \
  X(Dtype::iq1_s, widen_iq1_s) \
  X(Dtype::iq1_m, widen_iq1_m) \
  X(Dtype::iq2_xxs, widen_iq2_xxs) \
  X(Dtype::iq2_xs, widen_iq2_xs) \
  X(Dtype::iq2_s, widen_iq2_s) \
  X(Dtype::iq3_xxs, widen_iq3_xxs) \
  X(Dtype::iq3_s, widen_iq3_s) \
  X(Dtype::tq1_0, widen_tq1_0) \
  X(Dtype::tq2_0, widen_tq2_0) \
  X(Dtype::mxfp4, widen_mxfp4) \
  X(Dtype::nvfp4, widen_nvfp4)

}  // namespace
}  // namespace tealight::kernels
