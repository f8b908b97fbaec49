// The types whose rows multiply as integers: one header and one line of this list each.
//
// A type says (static members):
//   kDtype, kBlock (32 or 256), kBytes     as in kernels/types.h
//   kScaleAt, kMinAt                       where the f16 fields d and m (or dmin) lie in the block; kMinAt < 0: none
//   kSub                                   values that share a sub-scale (256 family: 16 or 32; 32 family: 32)
//   kMaxCode                               largest code, where codes are unsigned; 0: codes are signed bytes
//   kOffset                                weight = code - kOffset
//   kMaxScale                              256 family: largest magnitude of a sub-scale
//   codes(block, w)                        the codes in rising k, portable
//   scales(block, sc, mn)                  256 family: kBlock / kSub sub-scales (signed) and minima
// for 16 rows in the x16 layout (kernels/cpu/x16.h), whose words and fields a set's `Lanes` reads, lane r from row r:
//   kFields                                16-bit fields of a block; the first is d, the second m or dmin where kMinAt >= 0
//   x16_codes<Lanes>(w, i)                 codes of k = 4 i .. 4 i + 3 in the four bytes of each lane; w: the block's words
//   x16_scales<Lanes>(f, w, p)             256 family: sub-scales 2 p and 2 p + 1 in the halves of each lane; f: its fields
//   x16_mins<Lanes>(f, w, p)               the same of the minima, where kMinAt >= 0
// and for AVX2 and above, or NEON
//   codes32(block, j)                      the codes of k = 32 j .. 32 j + 31
//   scales16(block, sc, mn)                256 family, not for NEON: scales() in 16-bit lanes (8 fill the low half)
#pragma once
#include "kernels/cpu/base.h"

#include "kernels/cpu/types/iq4_nl.h"
#include "kernels/cpu/types/iq4_xs.h"
#include "kernels/cpu/types/q2_k.h"
#include "kernels/cpu/types/q3_k.h"
#include "kernels/cpu/types/q4_0.h"
#include "kernels/cpu/types/q4_k.h"
#include "kernels/cpu/types/q5_0.h"
#include "kernels/cpu/types/q5_k.h"
#include "kernels/cpu/types/q6_k.h"
#include "kernels/cpu/types/q8_0.h"

// X(type, its name in Dtype)
#define TL_INTEGER_TYPES(X)                                                                                      \
  X(Q4_0, q4_0) X(Q4_1, q4_1) X(Q5_0, q5_0) X(Q5_1, q5_1) X(Q8_0, q8_0) X(Q2_K, q2_k) X(Q3_K, q3_k) X(Q4_K, q4_k) \
  X(Q5_K, q5_k) X(Q6_K, q6_k) X(IQ4_NL, iq4_nl) X(IQ4_XS, iq4_xs)
