// Loops that keep the units of one instruction set busy: the one whose compiler flags the including file has. C and C++.
// They say how fast memory can be read and how many operations can be done; nothing that computes can be faster.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// A value that the compiler must believe to change here.
#if defined(__AVX512F__)
#define PEAK_OPAQUE(x) __asm__ volatile("" : "+v"(x))
#elif defined(__x86_64__)
#define PEAK_OPAQUE(x) __asm__ volatile("" : "+x"(x))
#elif defined(__aarch64__)
#define PEAK_OPAQUE(x) __asm__ volatile("" : "+w"(x))
#endif

enum { kPeakSteps = 4096, kPeakChains = 12 };  // chains: more than latency times units of any of these instructions
// Twelve independent chains of STEP(sum), kPeakSteps long, from `start`.
#define PEAK_LOOP(Type, start, STEP)                                                                                      \
  Type a0 = start, a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0, a8 = a0, a9 = a0, a10 = a0, a11 = a0;   \
  for (int i = 0; i < kPeakSteps; i++) {                                                                                  \
    STEP(a0) STEP(a1) STEP(a2) STEP(a3) STEP(a4) STEP(a5) STEP(a6) STEP(a7) STEP(a8) STEP(a9) STEP(a10) STEP(a11)         \
  }

// Each returns the operations that one call does (a multiply-add is two), 0 where the set has no such instruction.
static double peak_fma(void) {
#if defined(__AVX512F__)
  const __m512 m = _mm512_set1_ps(1.0001f), c = _mm512_set1_ps(0.5f);
#define PEAK_STEP(a) a = _mm512_fmadd_ps(a, m, c); PEAK_OPAQUE(a);
  PEAK_LOOP(__m512, c, PEAK_STEP)
#undef PEAK_STEP
  return 2.0 * 16 * kPeakChains * kPeakSteps;
#elif defined(__FMA__)
  const __m256 m = _mm256_set1_ps(1.0001f), c = _mm256_set1_ps(0.5f);
#define PEAK_STEP(a) a = _mm256_fmadd_ps(a, m, c); PEAK_OPAQUE(a);
  PEAK_LOOP(__m256, c, PEAK_STEP)
#undef PEAK_STEP
  return 2.0 * 8 * kPeakChains * kPeakSteps;
#elif defined(__ARM_NEON)
  const float32x4_t m = vdupq_n_f32(1.0001f);
#define PEAK_STEP(a) a = vfmaq_f32(m, a, m); PEAK_OPAQUE(a);
  PEAK_LOOP(float32x4_t, m, PEAK_STEP)
#undef PEAK_STEP
  return 2.0 * 4 * kPeakChains * kPeakSteps;
#else
  return 0;
#endif
}

// int8 products added up as int32, in vectors.
static double peak_int8(void) {
#if defined(__AVX512VNNI__)
  const __m512i m = _mm512_set1_epi8(3);
#define PEAK_STEP(a) a = _mm512_dpbusd_epi32(a, m, m); PEAK_OPAQUE(a);
  PEAK_LOOP(__m512i, m, PEAK_STEP)
#undef PEAK_STEP
  return 2.0 * 64 * kPeakChains * kPeakSteps;
#elif defined(__AVXVNNI__)
  const __m256i m = _mm256_set1_epi8(3);
#define PEAK_STEP(a) a = _mm256_dpbusd_avx_epi32(a, m, m); PEAK_OPAQUE(a);
  PEAK_LOOP(__m256i, m, PEAK_STEP)
#undef PEAK_STEP
  return 2.0 * 32 * kPeakChains * kPeakSteps;
#elif defined(__AVX2__)
  __m256i m = _mm256_set1_epi8(3);
  const __m256i ones = _mm256_set1_epi16(1);
#define PEAK_STEP(a) PEAK_OPAQUE(m); a = _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_maddubs_epi16(m, m), ones)); PEAK_OPAQUE(a);
  PEAK_LOOP(__m256i, m, PEAK_STEP)
#undef PEAK_STEP
  return 2.0 * 32 * kPeakChains * kPeakSteps;
#elif defined(__ARM_FEATURE_MATMUL_INT8)
  const int8x16_t m = vdupq_n_s8(3);
#define PEAK_STEP(a) a = vmmlaq_s32(a, m, m); PEAK_OPAQUE(a);
  PEAK_LOOP(int32x4_t, vdupq_n_s32(0), PEAK_STEP)
#undef PEAK_STEP
  return 2.0 * 32 * kPeakChains * kPeakSteps;
#elif defined(__ARM_FEATURE_DOTPROD)
  const int8x16_t m = vdupq_n_s8(3);
#define PEAK_STEP(a) a = vdotq_s32(a, m, m); PEAK_OPAQUE(a);
  PEAK_LOOP(int32x4_t, vdupq_n_s32(0), PEAK_STEP)
#undef PEAK_STEP
  return 2.0 * 16 * kPeakChains * kPeakSteps;
#else
  return 0;
#endif
}

// int8 products in AMX tiles; the process must have asked the kernel for them (arch_prctl).
static double peak_tiles(void) {
#if defined(__AMX_INT8__)
  static char data[5][1024] __attribute__((aligned(64)));
  struct { uint8_t palette, row, reserved[14]; uint16_t bytes[16]; uint8_t rows[16]; } config;
  memset(&config, 0, sizeof config);
  config.palette = 1;
  for (int i = 0; i < 8; i++) config.bytes[i] = 64, config.rows[i] = 16;
  __asm__ volatile("" : : "r"(&config) : "memory");  // gcc 12 believes that only 8 bytes are read
  _tile_loadconfig(&config);
  _tile_loadd(4, data[0], 64); _tile_loadd(5, data[1], 64); _tile_loadd(6, data[2], 64); _tile_loadd(7, data[3], 64);
  _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
  for (int i = 0; i < kPeakSteps; i++) {
    _tile_dpbssd(0, 4, 6); _tile_dpbssd(1, 4, 7); _tile_dpbssd(2, 5, 6); _tile_dpbssd(3, 5, 7);
  }
  _tile_stored(0, data[4], 64);
  _tile_release();
  return 4.0 * 2 * 16 * 16 * 64 * kPeakSteps;
#else
  return 0;
#endif
}

// Reads n bytes (a multiple of 512) from p, 64-byte aligned, asking for what lies `ahead` bytes further on; 0: not asking.
static void peak_read(const char* p, size_t n, size_t ahead) {
  typedef uint64_t Words __attribute__((vector_size(32), may_alias));
  Words a = {0}, b = a, c = a, d = a;
  for (size_t i = 0; i < n; i += 128) {
    if (ahead) __builtin_prefetch(p + i + ahead), __builtin_prefetch(p + i + ahead + 64);
    const Words* q = (const Words*)(const void*)(p + i);
    a |= q[0]; b |= q[1]; c |= q[2]; d |= q[3];
  }
  a |= b | c | d;
  static volatile uint64_t keep;
  keep = a[0] ^ a[1] ^ a[2] ^ a[3];
  (void)keep;
}
