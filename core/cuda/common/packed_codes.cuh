#pragma once
// In-register dequantization (packed_matrix.h) to f32, or of words to Pair (bf16x2 or f16x2, the cheaper;
// both exact).

#include <cuda_fp8.h>

#include <cstdint>

#include "core/cuda/common/pack.cuh"
#include "core/number/float4.h"
#include "core/number/float8.h"

namespace quench::cuda {

// Integers below 2^23 as mantissa of a float in [2^23, 2^24): no conversion.
inline constexpr std::uint32_t kTwoTo23 = 0x4B000000u;

__device__ inline void fused(const Packed<bfloat16>& codes, std::uint32_t factor, std::uint32_t addend,
                             std::uint32_t (&out)[4]) {
  const Packed<bfloat16> result = fused(codes, {factor, factor, factor, factor}, {addend, addend, addend, addend});
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = result.words[i];
}

struct Int4 {
  using Pair = bfloat16;
  static constexpr int kBits = 4;
  static __device__ float decode(std::uint32_t code) {
    return __uint_as_float(kTwoTo23 | ((code & 15u) ^ 8u)) - 8388616.0f;
  }
  // Lower nibbles are used in place: the exponent gives bit 4 i the weight 1. One shift, for the upper half.
  static __device__ void decode_word(std::uint32_t word, float (&out)[8]) {
    word ^= 0x88888888u;
    const std::uint32_t upper = word >> 16;
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t mask = 15u << (4 * i), one = kTwoTo23 - (i << 25);  // 2^(23 - 4 i)
      const float zero = __uint_as_float(one) + 8.0f;
      out[i] = __uint_as_float((word & mask) | one) - zero;
      out[i + 4] = __uint_as_float((upper & mask) | one) - zero;
    }
  }
  // Pair i: values i and i + 4, as low bits of 128 to 143.
  static __device__ void decode_pairs(std::uint32_t word, std::uint32_t (&out)[4]) {
    Packed<bfloat16> codes;
#pragma unroll
    for (int i = 0; i < 4; ++i)  // and, xor: one instruction
      asm("lop3.b32 %0, %1, %2, %3, 0x6A;"
          : "=r"(codes.words[i])
          : "r"(word >> (4 * i)), "r"(0x000F000Fu), "r"(0x43084308u));
    fused(codes, 0x3F803F80u, 0xC308C308u, out);
  }
};
struct Int8 {
  using Pair = float16;
  static constexpr int kBits = 8;
  static __device__ float decode(std::uint32_t code) {
    return __uint_as_float(kTwoTo23 | ((code & 255u) ^ 128u)) - 8388736.0f;
  }
  static __device__ void decode_word(std::uint32_t word, float (&out)[4]) {
    word ^= 0x80808080u;
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i)  // byte i below the upper bytes of 2^23
      out[i] = __uint_as_float(__byte_perm(word, kTwoTo23, 0x7540u + i)) - 8388736.0f;
  }
  // Pair i: values 2 i and 2 i + 1, as low bits of 1,024 to 1,279.
  static __device__ void decode_pairs(std::uint32_t word, std::uint32_t (&out)[2]) {
    word ^= 0x80808080u;
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
      constexpr std::uint32_t kTwoTo10 = 0x64646464u;
      const std::uint32_t codes = __byte_perm(word, kTwoTo10, i == 0 ? 0x4140u : 0x4342u);
      asm("sub.f16x2 %0, %1, %2;" : "=r"(out[i]) : "r"(codes), "r"(0x64806480u));  // 1,152
    }
  }
};
struct Float4 {
  using Pair = bfloat16;
  static constexpr int kBits = 4;
  static __device__ float decode(std::uint32_t code) { return E2m1::decode(static_cast<std::uint8_t>(code & 15u)); }
  static __device__ void decode_word(std::uint32_t word, float (&out)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = decode(word >> (4 * i));
  }
  // Pair i: values i and i + 4, exponent and mantissa in bf16's fields: 2^126 times too small, the smallest subnormal.
  static __device__ void decode_pairs(std::uint32_t word, std::uint32_t (&out)[4]) {
    Packed<bfloat16> codes;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t code = word >> (4 * i);
      codes.words[i] = ((code << 12) & 0x80008000u) | ((code << 6) & 0x01C001C0u);
    }
    fused(codes, 0x7E807E80u, 0x80008000u, out);
  }
};
struct Float8 {
  using Pair = float16;
  static constexpr int kBits = 8;
  static __device__ float decode(std::uint32_t code) { return E4m3::decode(static_cast<std::uint8_t>(code)); }
  static __device__ void decode_word(std::uint32_t word, float (&out)[4]) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {  // e4m3 is exact in f16
      const auto codes = static_cast<__nv_fp8x2_storage_t>(word >> (16 * pair));
      const float2 values = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3)));
      out[2 * pair] = values.x;
      out[2 * pair + 1] = values.y;
    }
  }
  static __device__ void decode_pairs(std::uint32_t word, std::uint32_t (&out)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    asm("{.reg .b16 low, high;\n"  // a half as operand costs no shift
        "mov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;}"
        : "=r"(out[0]), "=r"(out[1])
        : "r"(word));
#else
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const __half2_raw pair =
          __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(word >> (16 * i)), __NV_E4M3);
      out[i] = pair.x | std::uint32_t{pair.y} << 16;
    }
#endif
  }
};

template <class Codes>
inline constexpr int kPerWord = 32 / Codes::kBits;

}  // namespace quench::cuda
