// Any type to f32: n elements, a multiple of the block, exactly as the format says. Compiled once, portable.
#pragma once
#include "kernels/cpu/types/types.h"
#include "kernels/cpu/widen_rare.h"

namespace tealight::kernels {

void widen_f32(const void* src, float* dst, size_t n);
void widen_bf16(const void* src, float* dst, size_t n);
#define TL_WIDEN(Type, name) void widen_##name(const void* src, float* dst, size_t n);
TL_INTEGER_TYPES(TL_WIDEN)
#undef TL_WIDEN

// The types of Family::decode: X(name), for widen_NAME of widen_rare.h and Dtype::NAME.
#define TL_DECODE_TYPES(X)                                                                              \
  X(iq1_s) X(iq1_m) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) X(iq3_s) X(tq1_0) X(tq2_0) X(mxfp4) X(nvfp4)

}  // namespace tealight::kernels
