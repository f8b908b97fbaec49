// Integer products with vpdpbusd on zmm registers.
#include "kernels/cpu/vec/avx512.h"
#include "kernels/cpu/quant/round_avx2.h"
#include "kernels/cpu/quant/quantize.h"

namespace tealight::kernels {
namespace {

inline __m256i dot_add(__m256i acc, __m256i u, __m256i s) { return _mm256_dpbusd_epi32(acc, u, s); }
inline __m256i madd_add(__m256i acc, __m256i a, __m256i b) { return _mm256_dpwssd_epi32(acc, a, b); }

}  // namespace
}  // namespace tealight::kernels

#include "kernels/cpu/quant/lanes_avx512.h"
#include "kernels/cpu/quant/plain_avx.h"
#include "kernels/cpu/quant/vnni.h"

namespace tealight::kernels {

const QuantSet quant_set_avx512 = {
#define TL_ROW(Type, name)                                                                                            \
  .name = {Dtype::name, Type::kSub, Type::kOffset, Type::kMinAt >= 0, rows8<Type>, x16_rows<Type, Lanes512>, nullptr, \
           {fill_plain<Type>, fill_x16<Type, Lanes512>}, &quant_set_avx512.name.own,                                  \
           panel_tile<Shape<Type>, Lanes512, 1>, panel_tile<Shape<Type>, Lanes512, kActTile>, panel_tile<Shape<Type>, Lanes512, 2 * kActTile>},
    TL_INTEGER_TYPES(TL_ROW)
#undef TL_ROW
};

void quant_avx512(Table& t) {
  t.quantize = quantize;
  fill_rows<multiply, quant_set_avx512>(t);
}

}  // namespace tealight::kernels
