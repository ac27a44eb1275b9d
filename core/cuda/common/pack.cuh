#pragma once
// Values of f32, bf16 and f16 as they are kept in registers, from and to f32.
//
// Held as 32-bit words: a struct of 16-bit elements would take a register for each of them. Two values are converted
// to 16 bits at a time: that is one instruction of full rate, where a single value may go to the slow conversion unit.
// Conversions round to nearest even; NaN becomes the canonical NaN of a 16-bit type.

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

// The two 16-bit floats of a word, the first in its low half.
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

// N elements of T as they are stored, by default sixteen bytes of them. More are aligned as words: aligned to sixteen
// bytes, pieces of f32 cost kernels up to 1.6 times the instructions.
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

// Values as they are after being stored in T.
template <class T, int N>
__device__ inline Vector<float, N> rounded(const Vector<float, N>& values) {
  return unpack(pack<T>(values));
}

// Sums and products of bf16, rounded once, two to an instruction. They have the bits of the same in f32 rounded to
// bf16:
// - An f32 holds a product (16 bits) as it is, but for those below 2^-134, which are 0 in bf16 either way.
// - A sum that an f32 does not hold has an addend that is 2^-14 of the other at most: it is no nearer to the middle of
//   two neighbours in bf16 than 2^-10, and is rounded to the same one.
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
  constexpr std::uint32_t kZeros = 0x80008000;  // negative: a zero keeps the product's sign
  return fused(a, b, {kZeros, kZeros, kZeros, kZeros});
}

// Elements N * index .. N * index + N - 1 of a run of T that is aligned to their size, at most sixteen bytes.
template <class T, int N = kVectorWidth<T>>
__device__ inline Packed<T, N> load_packed(const T* pointer, std::int64_t index) {
  static_assert(N * sizeof(T) <= 16);
  return reinterpret_cast<const Packed<T, N>*>(pointer)[index];
}
// For what is read once: leaves the caches to others.
template <class T>
__device__ inline Packed<T> load_packed_once(const T* pointer, std::int64_t index) {
  return load_streaming(reinterpret_cast<const Packed<T>*>(pointer) + index);
}
template <class T, int N>
__device__ inline void store_packed(T* pointer, std::int64_t index, const Packed<T, N>& value) {
  reinterpret_cast<Packed<T, N>*>(pointer)[index] = value;
}

// Stores values as T, up to 32 bytes of them.
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
