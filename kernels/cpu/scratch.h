// Scratch of the matmuls: one size serves every type and instruction set.
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

// Floats: a panel [256][16] and the 16 widened rows it is made from.
constexpr int kFloatPiece = 256;
constexpr size_t kFloatScratch = size_t(kFloatPiece) * 16 * 4 * 2;
// Integers: 16 rows x up to 4096 k as bytes, and their scales (quant/panel.h; at most 5 bytes a value of k and 16 rows).
constexpr int kIntPiece = 4096;
constexpr size_t kIntScratch = size_t(kIntPiece) * (16 + 5);
// AMX (quant/amx.cpp) besides: 16 rows as split bytes, and tokens laid out again, at most 5 bytes for 4 values and 512 KiB of values.
constexpr int kAmxFewest = 16;  // tokens; below that avx512 is as fast
constexpr size_t kAmxSplit = size_t(kIntPiece) * 32;
constexpr int amx_tokens(int values) { return 512 * 1024 / values / 32 * 32; }
constexpr size_t amx_bytes(int values, int tokens) { return size_t(tokens + 15) / 16 * size_t(values) * 20; }
constexpr size_t kScratch = kFloatScratch > kIntScratch ? kFloatScratch : kIntScratch;

}  // namespace
}  // namespace tealight::kernels
