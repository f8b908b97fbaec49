// The x16 layout of quantized weights (types.h has its sizes), the same for every instruction set.
//
// A group is 16 consecutive rows; groups follow each other in rows, chunks in k. A chunk holds 2 blocks of the 32 family (an odd
// last block has a zeroed neighbour) or one of the 256 family:
//   fields   every 16-bit field (d; m or dmin; IQ4_XS's scales_h) of block 0, then of block 1, each beside the same field of the
//            other 15 rows: 32 bytes a field, row r at byte 2 r; then zeros up to a multiple of 64
//   words    every 4-byte word of the rest of block 0, then of block 1, beside the same word of the others: 64 bytes a word, row r
//            at byte 4 r. In the order of the block, but scales come before codes (Q2_K has them so; Q3_K and Q6_K do not)
#pragma once
#include "kernels/types.h"

namespace tealight::kernels {

// Lays `rows` (1 to 16) plain rows of K values, row_bytes(t, K) apart, into a group; rows up to 16 become zero.
void interleave_x16(Dtype t, const void* rows, int n_rows, int K, void* group);
// One row of a group as a plain row again.
void extract_x16(Dtype t, const void* group, int row, int K, void* plain);

}  // namespace tealight::kernels
