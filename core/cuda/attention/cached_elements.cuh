#pragma once
// Elements of a KV cache in the decode kernels: values of dtype T, or codes (packed_codes.cuh) with scales
// (core/ops/kv_cache/cache_codes.h).

#include <type_traits>

#include "core/cuda/common/packed_codes.cuh"
#include "core/cuda/common/vector.cuh"
#include "core/number/cache_code.h"

namespace quench::cuda {

template <class C>
inline constexpr bool kIsCoded = std::is_same_v<C, Float8> || std::is_same_v<C, Int8>;
template <class C>
using Stored = std::conditional_t<kIsCoded<C>, std::uint8_t, C>;
// Element in core/number.
template <class C>
using CodeElement = std::conditional_t<std::is_same_v<C, Float8>, E4m3, Int8Code>;

// Scales of keys, then values: of a row, or shared by all.
struct CacheScales {
  float* first = nullptr;
  std::int64_t row = 0;  // stride; 0: shared
  int kv_heads = 0;

  [[nodiscard]] __device__ float* key(std::int64_t at, int kv_head) const { return first + at * row + kv_head; }
  [[nodiscard]] __device__ float* value(std::int64_t at, int kv_head) const { return key(at, kv_heads + kv_head); }
};

// Magnitude bits order NaN above infinity: it is kept.
__device__ inline std::uint32_t warp_largest(std::uint32_t bits) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) bits = max(bits, __shfl_xor_sync(0xFFFFFFFFu, bits, offset));
  return bits;
}

// Scale of a vector whose elements a warp holds.
template <class C, int N>
__device__ float dynamic_scale(const Vector<float, N>& elements) {
  std::uint32_t most = 0;
#pragma unroll
  for (int j = 0; j < N; ++j) most = max(most, __float_as_uint(elements[j]) & kF32MagnitudeMask);
  return cache_scale<CodeElement<C>>(__uint_as_float(warp_largest(most)));
}

template <class C>
__device__ void store_codes8(std::uint8_t* to, const Vector<float, 8>& elements, float scale) {
  Vector<std::uint8_t, 8> codes;
#pragma unroll
  for (int j = 0; j < 8; ++j) codes[j] = cache_code<CodeElement<C>>(elements[j], scale);
  *reinterpret_cast<Vector<std::uint8_t, 8>*>(to) = codes;
}

}  // namespace quench::cuda
