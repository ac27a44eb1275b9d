#pragma once
// Codes of packed weights (core/tensor/packed_matrix.h) to f32 in registers, one or a word of 32 bits at a time.

#include <cuda_fp8.h>

#include <cstdint>

#include "core/number/float4.h"
#include "core/number/float8.h"

namespace quench::cuda {

// An integer from 0 to 2^23 - 1 without a conversion: it becomes the mantissa of a float between 2^23 and 2^24.
inline constexpr std::uint32_t kTwoTo23 = 0x4B000000u;

struct Int4 {
  static constexpr int kBits = 4;
  static __device__ float decode(std::uint32_t code) {
    return __uint_as_float(kTwoTo23 | ((code & 15u) ^ 8u)) - 8388616.0f;
  }
  // Nibble i of the lower half stands in the mantissa where a bit 4 i has weight 1: no shifts but one of the upper
  // half.
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
};
struct Int8 {
  static constexpr int kBits = 8;
  static __device__ float decode(std::uint32_t code) {
    return __uint_as_float(kTwoTo23 | ((code & 255u) ^ 128u)) - 8388736.0f;
  }
  static __device__ void decode_word(std::uint32_t word, float (&out)[4]) {
    word ^= 0x80808080u;
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i)  // byte i under the upper bytes of 2^23
      out[i] = __uint_as_float(__byte_perm(word, kTwoTo23, 0x7540u + i)) - 8388736.0f;
  }
};
struct Float4 {
  static constexpr int kBits = 4;
  static __device__ float decode(std::uint32_t code) { return E2m1::decode(static_cast<std::uint8_t>(code & 15u)); }
  static __device__ void decode_word(std::uint32_t word, float (&out)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = decode(word >> (4 * i));
  }
};
struct Float8 {
  static constexpr int kBits = 8;
  static __device__ float decode(std::uint32_t code) { return E4m3::decode(static_cast<std::uint8_t>(code)); }
  static __device__ void decode_word(std::uint32_t word, float (&out)[4]) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {  // f16 holds every value of e4m3
      const auto codes = static_cast<__nv_fp8x2_storage_t>(word >> (16 * pair));
      const float2 values = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3)));
      out[2 * pair] = values.x;
      out[2 * pair + 1] = values.y;
    }
  }
};

template <class Codes>
inline constexpr int kPerWord = 32 / Codes::kBits;

}  // namespace quench::cuda
