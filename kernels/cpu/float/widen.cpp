// The order of operations is that of the formats' own definition:
//   32 family   d * w (+ m)        256 family   (d * scale) * w (- dmin * min)
#include "kernels/cpu/float/widen.h"

namespace tealight::kernels {
namespace {

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

}  // namespace

void widen_f32(const void* src, float* dst, size_t n) { memcpy(dst, src, n * 4); }
void widen_bf16(const void* src, float* dst, size_t n) {
  for (size_t i = 0; i < n; i++) dst[i] = bf16_to_f32(load_u16(static_cast<const uint8_t*>(src) + 2 * i));
}
#define TL_WIDEN(Type, name) \
  void widen_##name(const void* src, float* dst, size_t n) { widen<Type>(src, dst, n); }
TL_INTEGER_TYPES(TL_WIDEN)

}  // namespace tealight::kernels
