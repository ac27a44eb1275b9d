#pragma once
// Vectorized access, 16 bytes per thread where aligned, and conversions.
//   Vector<T, N>    N elements for arithmetic
//   Packed<T, N>    N stored elements in words (pack.cuh)
//   Piece, PackedPiece<T>   8 elements (quantize_common.cuh)

#include <cuda_bf16.h>

#include <cstdint>

#include "core/number/float_types.h"

namespace quench::cuda {

template <class T>
inline constexpr int kVectorWidth = static_cast<int>(16 / sizeof(T));

template <class T, int N = kVectorWidth<T>>
struct alignas(sizeof(T) * N) Vector {
  T values[N];
  __device__ T& operator[](int i) { return values[i]; }
  __device__ const T& operator[](int i) const { return values[i]; }
};

// Every row at `pointer` allows 16-byte accesses; sizes in elements.
template <class T>
[[nodiscard]] inline bool rows_are_wide(const void* pointer, std::int64_t row_stride, std::int64_t width) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0 && row_stride % kVectorWidth<T> == 0 &&
         width % kVectorWidth<T> == 0;
}

__device__ inline float to_float(float value) {
  return value;
}
__device__ inline float to_float(bfloat16 value) {
  return __uint_as_float(static_cast<std::uint32_t>(value.bits) << 16);
}

// Round to nearest even; NaN becomes canonical.
template <class T>
__device__ inline T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline bfloat16 from_float<bfloat16>(float value) {
  return bfloat16::from_bits(__bfloat16_as_ushort(__float2bfloat16_rn(value)));
}

template <class T>
__device__ inline float rounded(float value) {
  return to_float(from_float<T>(value));
}

// Evict-first.
template <class V>
__device__ inline V load_streaming(const V* pointer) {
  static_assert(sizeof(V) == 16);
  const int4 bits = __ldcs(reinterpret_cast<const int4*>(pointer));
  return *reinterpret_cast<const V*>(&bits);
}
}  // namespace quench::cuda
