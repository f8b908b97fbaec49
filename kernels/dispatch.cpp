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

constexpr const char* kNames[kIsas] = {"ref", "avx2", "avxvnni", "avx512", "amx", "neon", "i8mm"};

struct Cpu {
  bool avx2 = false, avx512 = false, amx = false, neon = false, i8mm = false;
  bool zen3 = false;   // or 4
  unsigned leaf7 = 0;  // largest sub-leaf of leaf 7
};

Cpu detect() {
  Cpu cpu;
#if TL_BUILD_AVX2 || TL_BUILD_AVX512
  unsigned a, b, c, d;
  __cpuid(0, a, b, c, d);
  if (a < 7) return cpu;
  const bool amd = b == 0x68747541;  // "Auth"
  __cpuid(1, a, b, c, d);
  cpu.zen3 = amd && (a >> 8 & 15) + (a >> 20 & 255) == 25;
  const bool fma = c >> 12 & 1, os_saves = c >> 27 & 1, avx = c >> 28 & 1, f16c = c >> 29 & 1;
  if (!(fma && os_saves && avx && f16c)) return cpu;
  unsigned state, high;
  __asm__ volatile("xgetbv" : "=a"(state), "=d"(high) : "c"(0));
  if ((state & 6) != 6) return cpu;  // the system saves xmm and ymm
  __cpuid_count(7, 0, a, b, c, d);
  cpu.leaf7 = a;
  cpu.avx2 = b >> 5 & 1;
  // F, DQ, BW, VL; VNNI; and zmm and mask registers saved
  constexpr unsigned kAvx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
  cpu.avx512 = cpu.avx2 && (b & kAvx512) == kAvx512 && (c >> 11 & 1) && (state & 0xe0) == 0xe0;
  constexpr unsigned kTiles = 1u << 24 | 1u << 25, kTileState = 1u << 17 | 1u << 18;  // AMX-TILE, AMX-INT8; configuration and data
  cpu.amx = cpu.avx512 && (d & kTiles) == kTiles && (state & kTileState) == kTileState;
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

#if TL_BUILD_AVXVNNI
// Asked only where nothing better is there.
bool has_avxvnni() {
  unsigned a, b, c, d;
  if (!cpu().avx2 || cpu().leaf7 < 1) return false;
  __cpuid_count(7, 1, a, b, c, d);
  return a >> 4 & 1;
}
#endif
#if TL_BUILD_AMX
// The system saves tiles only of processes that have asked; the permission is for all threads, and for good.
bool may_use_tiles() {
  constexpr long kArchPrctl = 158, kRequestPermission = 0x1023, kTileData = 18;
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(kArchPrctl), "D"(kRequestPermission), "S"(kTileData) : "rcx", "r11", "memory");
  return result == 0;
}
#endif

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

bool side_by_side = cpu().zen3;

size_t act_bytes(Family family, int T, int K) { return size_t(T) * act_token_bytes(family, K); }

void act_values(Family family, const void* act, int K, float* out) {
  const ActTile a = act_tile(family, act, K, 0, 1);
  const int block = family == Family::block256 ? 256 : 32;
  for (int k = 0; k < K; k++) out[k] = float(a.q[k]) * a.dx[k / block];
}

size_t matmul_scratch_bytes(int K, int T) {
#if TL_BUILD_AMX
  const int values = K < kIntPiece ? K : kIntPiece, tokens = amx_tokens(values);
  if (T >= kAmxFewest) return kScratch + kAmxSplit + amx_bytes(values, T < tokens ? T : tokens);
#endif
  (void)K, (void)T;
  return kScratch;
}

size_t attention_score_bytes(int queries, int tiles) { return size_t(queries) * (score_stride(tiles) + 1) * sizeof(float); }

size_t attention_work_bytes(int queries, int d, int dv) {
  const size_t n = size_t(queries), k = n * size_t(d) + size_t(tiles_at_once(d)) * size_t(d) * 16;
  const size_t v = (n * 16 + kPanelFloats) * size_t(up16(dv) / 16);
  return (k > v ? k : v) * sizeof(float);
}

const char* isa_name(Isa isa) { return kNames[int(isa)]; }

bool isa_supported(Isa isa) {
  switch (isa) {
    case Isa::ref: return true;
    case Isa::avx2: return TL_BUILD_AVX2 && cpu().avx2;
#if TL_BUILD_AVXVNNI
    case Isa::avxvnni: {
      static const bool there = has_avxvnni();
      return there;
    }
#endif
    case Isa::avx512: return TL_BUILD_AVX512 && cpu().avx512;
#if TL_BUILD_AMX
    case Isa::amx: {
      static const bool there = cpu().amx && may_use_tiles();
      return there;
    }
#endif
    case Isa::neon: return TL_BUILD_NEON && cpu().neon;
    case Isa::i8mm: return TL_BUILD_I8MM && cpu().i8mm;
    default: return false;
  }
}

const Table& table(Isa isa) {
#if TL_BUILD_AVX2
  if (isa == Isa::avx2) {
    static const Table t = filled(isa, quant_avx2, float_avx2, row_avx2, attention_avx2);
    return t;
  }
#endif
#if TL_BUILD_AVXVNNI
  if (isa == Isa::avxvnni) {
    static const Table t = filled(isa, quant_avxvnni, float_avx2, row_avx2, attention_avx2);
    return t;
  }
#endif
#if TL_BUILD_AVX512
  if (isa == Isa::avx512) {
    static const Table t = filled(isa, quant_avx512, float_avx512, row_avx512, attention_avx512);
    return t;
  }
#endif
#if TL_BUILD_AMX
  if (isa == Isa::amx) {
    static const Table t = filled(isa, quant_amx, float_avx512, row_avx512, attention_avx512);
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
#define TL_LACKING(word) #word ": not supported by this CPU"
    static constexpr const char* kLacking[kIsas] = {"", TL_LACKING(avx2), TL_LACKING(avxvnni), TL_LACKING(avx512), TL_LACKING(amx),
                                                 TL_LACKING(neon), TL_LACKING(i8mm)};
#undef TL_LACKING
    for (int i = 0; i < kIsas; i++) {
      if (!same(forced, kNames[i])) continue;
      if (isa_supported(Isa(i))) return &table(Isa(i));
      *error = kLacking[i];
      return nullptr;
    }
    *error = "TEALIGHT_ISA: unknown word (known: ref, avx2, avxvnni, avx512, amx, neon, i8mm)";
    return nullptr;
  }
  for (int i = kIsas - 1; i > 0; i--)
    if (isa_supported(Isa(i))) return &table(Isa(i));
  return &table(Isa::ref);
}

}  // namespace tealight::kernels
