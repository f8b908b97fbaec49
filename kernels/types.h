// Element types of tensors, in files and in memory. C-like: kernel objects include this header, so it uses no library.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace tealight {

// Block-quantized types have the byte layout of GGUF. The order is ours; file formats map their own numbers to it.
enum class Dtype : uint8_t {
  f32, f16, bf16, f64, i8, i16, i32, i64, u8, u16, u32, u64, boolean, f8_e4m3, f8_e5m2,
  q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs,
  iq1_s, iq1_m, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s, tq1_0, tq2_0, mxfp4, nvfp4, q8_k, q8_1,
  count,
};
constexpr int kDtypes = int(Dtype::count);

// How a weight multiplies: floats by one fma a k; the integer families against int8 activations with one scale for every
// 32 or 256 values; `decode` types are widened to f32 first; `none` cannot be multiplied.
enum class Family : uint8_t { none, floating, block32, block256, decode };

struct DtypeInfo {
  const char* name;   // as GGUF writes it for quantized types ("Q4_K"), as safetensors does for the others ("BF16")
  int block;          // elements in a block
  int bytes;          // bytes of a block
  Family family;
};

constexpr DtypeInfo kDtypeInfo[kDtypes] = {
    {"F32", 1, 4, Family::floating}, {"F16", 1, 2, Family::floating}, {"BF16", 1, 2, Family::floating},
    {"F64", 1, 8, Family::none}, {"I8", 1, 1, Family::none}, {"I16", 1, 2, Family::none}, {"I32", 1, 4, Family::none},
    {"I64", 1, 8, Family::none}, {"U8", 1, 1, Family::none}, {"U16", 1, 2, Family::none}, {"U32", 1, 4, Family::none},
    {"U64", 1, 8, Family::none}, {"BOOL", 1, 1, Family::none}, {"F8_E4M3", 1, 1, Family::none}, {"F8_E5M2", 1, 1, Family::none},
    {"Q4_0", 32, 18, Family::block32}, {"Q4_1", 32, 20, Family::block32}, {"Q5_0", 32, 22, Family::block32},
    {"Q5_1", 32, 24, Family::block32}, {"Q8_0", 32, 34, Family::block32}, {"Q2_K", 256, 84, Family::block256},
    {"Q3_K", 256, 110, Family::block256}, {"Q4_K", 256, 144, Family::block256}, {"Q5_K", 256, 176, Family::block256},
    {"Q6_K", 256, 210, Family::block256}, {"IQ4_NL", 32, 18, Family::block32}, {"IQ4_XS", 256, 136, Family::block256},
    {"IQ1_S", 256, 50, Family::decode}, {"IQ1_M", 256, 56, Family::decode}, {"IQ2_XXS", 256, 66, Family::decode},
    {"IQ2_XS", 256, 74, Family::decode}, {"IQ2_S", 256, 82, Family::decode}, {"IQ3_XXS", 256, 98, Family::decode},
    {"IQ3_S", 256, 110, Family::decode}, {"TQ1_0", 256, 54, Family::decode}, {"TQ2_0", 256, 66, Family::decode},
    {"MXFP4", 32, 17, Family::decode}, {"NVFP4", 64, 36, Family::decode}, {"Q8_K", 256, 292, Family::none},
    {"Q8_1", 32, 36, Family::none},
};

constexpr const DtypeInfo& info(Dtype t) { return kDtypeInfo[int(t)]; }
constexpr const char* name(Dtype t) { return info(t).name; }
constexpr bool is_quantized(Dtype t) { return t >= Dtype::q4_0; }
constexpr bool is_float(Dtype t) { return t <= Dtype::f64; }
// Bytes of n elements of one row; n is a multiple of the block.
constexpr size_t row_bytes(Dtype t, size_t n) { return n / size_t(info(t).block) * size_t(info(t).bytes); }

// The x16 layout: 16 neighbouring rows of an integer family side by side, so that lanes are rows (kernels/cpu/x16.h says
// where each byte goes). Chunks of 2 blocks (block32) or one (block256), 64-byte aligned; rows beyond the last are zero.
constexpr bool has_x16(Dtype t) { return info(t).family == Family::block32 || info(t).family == Family::block256; }
constexpr size_t x16_chunk_bytes(Dtype t) {
  const size_t blocks = info(t).family == Family::block32 ? 2 : 1;
  return (blocks * size_t(info(t).bytes) * 16 + 63) / 64 * 64;
}
// Bytes that one of the 16 rows takes, n values in each: a group takes 16 times as many.
constexpr size_t x16_row_bytes(Dtype t, size_t n) {
  const size_t blocks = n / size_t(info(t).block), chunks = info(t).family == Family::block32 ? (blocks + 1) / 2 : blocks;
  return chunks * x16_chunk_bytes(t) / 16;
}

}  // namespace tealight
