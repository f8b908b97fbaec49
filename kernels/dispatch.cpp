// Which instruction set: what the CPU and the system can do, found once: with at most four CPUID leaves, or on ARM from what the
// kernel told the process at its start.
#include "kernels/cpu/act.h"
#include "kernels/cpu/attention/sizes.h"
#include "kernels/cpu/parts.h"
#include "kernels/cpu/scratch.h"

#if TL_BUILD_AVX2 || TL_BUILD_AVX512
#include <cpuid.h>
#endif
#if TL_BUILD_NEON || TL_BUILD_I8MM
#include <sys/auxv.h>
#endif

namespace tealight::kernels {
namespace {

constexpr const char* kNames[kIsas] = {"ref", "avx2", "avx512", "neon", "i8mm"};

struct Cpu {
  bool avx2 = false, avx512 = false, neon = false, i8mm = false;
};

Cpu detect() {
  Cpu cpu;
#if TL_BUILD_AVX2 || TL_BUILD_AVX512
  unsigned a, b, c, d;
  __cpuid(0, a, b, c, d);
  if (a < 7) return cpu;
  __cpuid(1, a, b, c, d);
  const bool fma = c >> 12 & 1, os_saves = c >> 27 & 1, avx = c >> 28 & 1, f16c = c >> 29 & 1;
  if (!(fma && os_saves && avx && f16c)) return cpu;
  unsigned state, high;
  __asm__ volatile("xgetbv" : "=a"(state), "=d"(high) : "c"(0));
  if ((state & 6) != 6) return cpu;  // the system saves xmm and ymm
  __cpuid_count(7, 0, a, b, c, d);
  cpu.avx2 = b >> 5 & 1;
  // F, DQ, BW, VL; VNNI; and zmm and mask registers saved
  constexpr unsigned kAvx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
  cpu.avx512 = cpu.avx2 && (b & kAvx512) == kAvx512 && (c >> 11 & 1) && (state & 0xe0) == 0xe0;
#endif
#if TL_BUILD_NEON || TL_BUILD_I8MM
  cpu.neon = getauxval(AT_HWCAP) >> 20 & 1;               // HWCAP_ASIMDDP, the dot product
  cpu.i8mm = cpu.neon && (getauxval(AT_HWCAP2) >> 13 & 1);  // HWCAP2_I8MM
#endif
  return cpu;
}

const Cpu& cpu() {
  static const Cpu c = detect();
  return c;
}

// The filling functions are compiled for their instruction set: they run only when their table is asked for.
using Fill = void (*)(Table&);
Table filled(Isa isa, Fill quant, Fill floats, Fill row, Fill attention) {
  Table t = {};
  t.isa = kNames[int(isa)];
  quant(t), floats(t), row(t), attention(t);
  return t;
}

bool same(const char* a, const char* b) { return strcmp(a, b) == 0; }

}  // namespace

size_t act_bytes(Family family, int T, int K) { return size_t(T) * act_token_bytes(family, K); }

void act_values(Family family, const void* act, int K, float* out) {
  const ActTile a = act_tile(family, act, K, 0, 1);
  const int block = family == Family::block256 ? 256 : 32;
  for (int k = 0; k < K; k++) out[k] = float(a.q[k]) * a.dx[k / block];
}

size_t matmul_scratch_bytes(int, int) { return kScratch; }

size_t attention_score_bytes(int queries, int tiles) { return size_t(queries) * (score_stride(tiles) + 1) * sizeof(float); }

size_t attention_work_bytes(int queries, int d, int dv) {
  const size_t n = size_t(queries), k = n * size_t(d) + size_t(tiles_at_once(d)) * size_t(d) * 16;
  const size_t v = (n + size_t(kPieceKeys)) * size_t(up16(dv));
  return (k > v ? k : v) * sizeof(float);
}

const char* isa_name(Isa isa) { return kNames[int(isa)]; }

bool isa_supported(Isa isa) {
  switch (isa) {
    case Isa::ref: return true;
    case Isa::avx2: return TL_BUILD_AVX2 && cpu().avx2;
    case Isa::avx512: return TL_BUILD_AVX512 && cpu().avx512;
    case Isa::neon: return TL_BUILD_NEON && cpu().neon;
    case Isa::i8mm: return TL_BUILD_I8MM && cpu().i8mm;
  }
  return false;
}

const Table& table(Isa isa) {
#if TL_BUILD_AVX2
  if (isa == Isa::avx2) {
    static const Table t = filled(isa, quant_avx2, float_avx2, row_avx2, attention_avx2);
    return t;
  }
#endif
#if TL_BUILD_AVX512
  if (isa == Isa::avx512) {
    static const Table t = filled(isa, quant_avx512, float_avx512, row_avx512, attention_avx512);
    return t;
  }
#endif
#if TL_BUILD_NEON
  if (isa == Isa::neon) {
    static const Table t = filled(isa, quant_neon, float_neon, row_neon, attention_neon);
    return t;
  }
#endif
#if TL_BUILD_I8MM
  if (isa == Isa::i8mm) {
    static const Table t = filled(isa, quant_i8mm, float_neon, row_neon, attention_neon);
    return t;
  }
#endif
  static const Table t = filled(Isa::ref, quant_ref, float_ref, row_ref, attention_ref);
  (void)isa;
  return t;
}

const Table* choose(const char* forced, const char** error) {
  *error = nullptr;
  if (forced && *forced) {
    static constexpr const char* kLacking[kIsas] = {"", "avx2: not supported by this CPU", "avx512: not supported by this CPU",
                                                 "neon: not supported by this CPU", "i8mm: not supported by this CPU"};
    for (int i = 0; i < kIsas; i++) {
      if (!same(forced, kNames[i])) continue;
      if (isa_supported(Isa(i))) return &table(Isa(i));
      *error = kLacking[i];
      return nullptr;
    }
    *error = "TEALIGHT_ISA: unknown word (known: ref, avx2, avx512, neon, i8mm)";
    return nullptr;
  }
  for (int i = kIsas - 1; i > 0; i--)
    if (isa_supported(Isa(i))) return &table(Isa(i));
  return &table(Isa::ref);
}

}  // namespace tealight::kernels
