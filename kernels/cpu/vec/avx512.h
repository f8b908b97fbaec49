// Sixteen float lanes in one zmm register. Needs AVX-512 F, BW, DQ, VL and VNNI, and what vec/avx2.h needs.
// (A test compiles what includes this for AVX2, with tests/emulate_avx512.h put before everything.)
#pragma once
#define TL_AVX512 1
#include "kernels/cpu/vec/avx2.h"

namespace tealight::kernels {
namespace {

struct Vec {
  static constexpr int kRegisters = 32;
  __m512 v;

  static __m512i bits_of(__m512 x) { return _mm512_castps_si512(x); }
  static __m512i sign() { return _mm512_set1_epi32(int(0x80000000)); }

  static Vec set(float x) { return {_mm512_set1_ps(x)}; }
  static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Vec load(const uint16_t* p) { return {_mm512_cvtph_ps(load256(p))}; }
  static Vec load(const int8_t* p) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load128(p)))}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  static Vec add(Vec x, Vec y) { return {_mm512_add_ps(x.v, y.v)}; }
  static Vec sub(Vec x, Vec y) { return {_mm512_sub_ps(x.v, y.v)}; }
  static Vec mul(Vec x, Vec y) { return {_mm512_mul_ps(x.v, y.v)}; }
  static Vec div(Vec x, Vec y) { return {_mm512_div_ps(x.v, y.v)}; }
  static Vec fma(Vec x, Vec y, Vec z) { return {_mm512_fmadd_ps(x.v, y.v, z.v)}; }
  static Vec max(Vec x, Vec y) { return {_mm512_max_ps(x.v, y.v)}; }
  static Vec min(Vec x, Vec y) { return {_mm512_min_ps(x.v, y.v)}; }
  static Vec select_less(Vec x, Vec y, Vec yes, Vec no) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ), no.v, yes.v)};
  }
  static Vec abs(Vec x) { return {_mm512_castsi512_ps(_mm512_andnot_si512(sign(), bits_of(x.v)))}; }
  static Vec copysign(Vec x, Vec s) {
    return {_mm512_castsi512_ps(_mm512_or_si512(bits_of(abs(x).v), _mm512_and_si512(sign(), bits_of(s.v))))};
  }
  static Vec add_exponent(Vec x, Vec n) {
    return {_mm512_castsi512_ps(_mm512_add_epi32(bits_of(x.v), _mm512_slli_epi32(bits_of(n.v), 23)))};
  }
};

}  // namespace
}  // namespace tealight::kernels
