// The x16 layout of quantized weights (types.h has its sizes), the same for every instruction set.
//
// A group is 16 consecutive rows; groups follow each other in rows, chunks in k. A chunk holds 2 blocks of the 32 family (an odd
// last block has a zeroed neighbour) or one of the 256 family: first every 16-bit field of every block beside the same field
// of the other 15 rows (32 bytes a field, row r at byte 2 r), in the order of the block; then every 4-byte word of the rest of
// block 0, then of block 1, beside the same word of the others (64 bytes a word, row r at byte 4 r). Zero bytes fill up to 64.
//   fields of 16 bits   d, and m, dmin or IQ4_XS's scales_h where the type has them
//   words               all other bytes of the block in their order
#pragma once
#include "kernels/types.h"

namespace tealight::kernels {

// Lays `rows` (1 to 16) plain rows of K values, row_bytes(t, K) apart, into a group; rows up to 16 become zero.
void interleave_x16(Dtype t, const void* rows, int n_rows, int K, void* group);
// One row of a group as a plain row again.
void extract_x16(Dtype t, const void* group, int row, int K, void* plain);

}  // namespace tealight::kernels
