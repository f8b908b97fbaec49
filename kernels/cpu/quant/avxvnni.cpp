// AVX2 with vpdpbusd on ymm registers: the common types; panels are filled by avx2, which also has all else.
#include "kernels/cpu/vec/avx2.h"
#include "kernels/cpu/parts.h"

namespace tealight::kernels {
namespace {

inline __m256i dot_add(__m256i acc, __m256i u, __m256i s) { return _mm256_dpbusd_avx_epi32(acc, u, s); }
inline __m256i madd_add(__m256i acc, __m256i a, __m256i b) { return _mm256_dpwssd_avx_epi32(acc, a, b); }

}  // namespace
}  // namespace tealight::kernels

#include "kernels/cpu/quant/lanes_avx2.h"
#include "kernels/cpu/quant/plain_avx.h"
#include "kernels/cpu/quant/vnni.h"

namespace tealight::kernels {

// X(type, its name in Dtype), as in TL_INTEGER_TYPES
#define TL_COMMON_TYPES(X) X(Q4_0, q4_0) X(Q4_1, q4_1) X(Q8_0, q8_0) X(Q4_K, q4_k) X(Q5_K, q5_k) X(Q6_K, q6_k)

static const QuantSet set = {
#define TL_ROW(Type, name)                                                                                            \
  .name = {Dtype::name, Type::kSub, Type::kOffset, Type::kMinAt >= 0, rows8<Type>, x16_rows<Type, Lanes256>, nullptr, \
           {}, &quant_set_avx2.name.own,                                                                              \
           panel_tile<Shape<Type>, Lanes256, 1>, panel_tile<Shape<Type>, Lanes256, kActTile>, nullptr},
    TL_COMMON_TYPES(TL_ROW)
#undef TL_ROW
};

void quant_avxvnni(Table& t) {
  quant_avx2(t);
#define TL_ROW(Type, name) fill_row<multiply, set, &QuantSet::name>(t, Dtype::name);
  TL_COMMON_TYPES(TL_ROW)
#undef TL_ROW
}

}  // namespace tealight::kernels
