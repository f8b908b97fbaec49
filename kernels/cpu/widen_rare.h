// Block types that are widened to f32 before they multiply (Family::decode): portable code, the values of the GGUF format
// to the last bit. src: n / block blocks, unaligned; dst: n floats; n is a multiple of the block.
#pragma once
#include <stddef.h>

namespace tealight::kernels {

void widen_iq1_s(const void* src, float* dst, size_t n);
void widen_iq1_m(const void* src, float* dst, size_t n);
void widen_iq2_xxs(const void* src, float* dst, size_t n);
void widen_iq2_xs(const void* src, float* dst, size_t n);
void widen_iq2_s(const void* src, float* dst, size_t n);
void widen_iq3_xxs(const void* src, float* dst, size_t n);
void widen_iq3_s(const void* src, float* dst, size_t n);
void widen_tq1_0(const void* src, float* dst, size_t n);
void widen_tq2_0(const void* src, float* dst, size_t n);
void widen_mxfp4(const void* src, float* dst, size_t n);
void widen_nvfp4(const void* src, float* dst, size_t n);

}  // namespace tealight::kernels
