#pragma once
// f32, bf16 and f16 values in 32-bit registers; conversions pairwise (one full-rate instruction), round to nearest
// even; NaN becomes canonical.

#include <cuda_fp16.h>

#include <type_traits>

#include "core/cuda/common/vector.cuh"

namespace quench::cuda {

__device__ inline float to_float(float16 value) {
  return __half2float(__ushort_as_half(value.bits));
}
template <>
__device__ inline float16 from_float<float16>(float value) {
  return float16::from_bits(__half_as_ushort(__float2half_rn(value)));
}

// Low half first.
template <class T>
__device__ inline float2 unpack_pair(std::uint32_t word) {
  if constexpr (std::is_same_v<T, bfloat16>)
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000u));
  else
    return __half22float2(__halves2half2(__ushort_as_half(static_cast<unsigned short>(word)),
                                         __ushort_as_half(static_cast<unsigned short>(word >> 16))));
}
template <class T>
__device__ inline std::uint32_t pack_pair(float first, float second) {
  std::uint32_t word;
  if constexpr (std::is_same_v<T, bfloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}

// Storage of N elements, by default 16 bytes. Larger ones are 4-byte aligned: 16-byte alignment costs f32 kernels up to
// 1.6 times the instructions.
template <class T, int N = kVectorWidth<T>>
struct alignas(N * sizeof(T) <= 16 ? N * sizeof(T) : sizeof(std::uint32_t)) Packed {
  static constexpr int kWords = N * static_cast<int>(sizeof(T)) / 4;
  std::uint32_t words[kWords];
};
template <class T>
struct Packed<T, 1> {
  T value;
};

template <class T, int N>
__device__ inline Vector<float, N> unpack(const Packed<T, N>& packed) {
  Vector<float, N> result;
  if constexpr (N == 1) {
    result[0] = to_float(packed.value);
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < N; ++i) result[i] = __uint_as_float(packed.words[i]);
  } else {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float2 pair = unpack_pair<T>(packed.words[i]);
      result[2 * i] = pair.x;
      result[2 * i + 1] = pair.y;
    }
  }
  return result;
}

template <class T, int N>
__device__ inline Packed<T, N> pack(const Vector<float, N>& values) {
  Packed<T, N> result;
  if constexpr (N == 1) {
    result.value = from_float<T>(values[0]);
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < N; ++i) result.words[i] = __float_as_uint(values[i]);
  } else {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) result.words[i] = pack_pair<T>(values[2 * i], values[2 * i + 1]);
  }
  return result;
}

template <class T, int N>
__device__ inline Vector<float, N> rounded(const Vector<float, N>& values) {
  return unpack(pack<T>(values));
}

// bf16x2 FMA and multiply, rounded once: bit-identical to f32 arithmetic rounded to bf16. f32 holds a bf16 product (16
// bits) exactly, except below 2^-134, which is 0 in bf16. A sum inexact in f32 has one addend of at most 2^-14 of the
// other: it is at least 2^-10 from a bf16 midpoint, so both round alike.
__device__ inline Packed<bfloat16> fused(const Packed<bfloat16>& a, const Packed<bfloat16>& b,
                                         const Packed<bfloat16>& c) {
  Packed<bfloat16> result;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result.words[i]) : "r"(a.words[i]), "r"(b.words[i]), "r"(c.words[i]));
  return result;
}
__device__ inline Packed<bfloat16> sum(const Packed<bfloat16>& a, const Packed<bfloat16>& b) {
  constexpr std::uint32_t kOnes = 0x3F803F80;
  return fused(a, {kOnes, kOnes, kOnes, kOnes}, b);
}
__device__ inline Packed<bfloat16> product(const Packed<bfloat16>& a, const Packed<bfloat16>& b) {
  constexpr std::uint32_t kZeros = 0x80008000;  // -0: keeps the sign of a zero product
  return fused(a, b, {kZeros, kZeros, kZeros, kZeros});
}

// Elements N * index .. N * index + N - 1; aligned to N elements, at most 16 bytes.
template <class T, int N = kVectorWidth<T>>
__device__ inline Packed<T, N> load_packed(const T* pointer, std::int64_t index) {
  static_assert(N * sizeof(T) <= 16);
  return reinterpret_cast<const Packed<T, N>*>(pointer)[index];
}
// Evict-first.
template <class T>
__device__ inline Packed<T> load_packed_once(const T* pointer, std::int64_t index) {
  return load_streaming(reinterpret_cast<const Packed<T>*>(pointer) + index);
}
template <class T, int N>
__device__ inline void store_packed(T* pointer, std::int64_t index, const Packed<T, N>& value) {
  reinterpret_cast<Packed<T, N>*>(pointer)[index] = value;
}

// Up to 32 bytes.
template <class T, int N>
__device__ inline void store_values(T* pointer, std::int64_t index, const Vector<float, N>& values) {
  if constexpr (N > 1 && N * sizeof(T) > 16) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Vector<float, N / 2> part;
#pragma unroll
      for (int j = 0; j < N / 2; ++j) part[j] = values[half * (N / 2) + j];
      store_values(pointer, 2 * index + half, part);
    }
  } else {
    reinterpret_cast<Packed<T, N>*>(pointer)[index] = pack<T>(values);
  }
}

}  // namespace quench::cuda
