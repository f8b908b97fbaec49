// Scratch of the matmuls: one size serves every type and instruction set.
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

// Floats: a panel [256][16] and the 16 widened rows it is made from.
constexpr int kFloatPiece = 256;
constexpr size_t kFloatScratch = size_t(kFloatPiece) * 16 * 4 * 2;

}  // namespace
}  // namespace tealight::kernels
