// Sixteen rows of floats.
#pragma once
#include "kernels/cpu/base.h"

namespace tealight::kernels {
namespace {

// Sixteen neighbouring rows from `first`; those beyond `last` repeat it.
struct Rows {
  const uint8_t* at[16];
  Rows(const void* w, size_t stride, int first, int last) {
    for (int i = 0; i < 16; i++) at[i] = static_cast<const uint8_t*>(w) + size_t(min_int(first + i, last)) * stride;
  }
};

}  // namespace
}  // namespace tealight::kernels
