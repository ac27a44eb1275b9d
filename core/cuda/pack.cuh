#pragma once
// Sixteen bytes of f32 or bf16 as they are kept in registers, from and to f32.
//
// Held as 32-bit words: a struct of 16-bit elements would take a register for each of them. Two values are converted
// to bf16 at a time: that is one instruction of full rate, where a single value may go to the slow conversion unit.

#include "core/cuda/vector.cuh"

namespace quench::cuda {

struct alignas(16) Packed {
  std::uint32_t words[4];
};

// Elements of T in a Packed as f32.
template <class T>
using Floats = Vector<float, kVectorWidth<T>>;

template <class T>
__device__ inline Floats<T> unpack(const Packed& packed) {
  Floats<T> result;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      result[i] = __uint_as_float(packed.words[i]);
    } else {
      result[2 * i] = __uint_as_float(packed.words[i] << 16);
      result[2 * i + 1] = __uint_as_float(packed.words[i] & 0xFFFF0000u);
    }
  }
  return result;
}

// Rounds to nearest even; in bf16 NaN becomes the canonical NaN.
template <class T>
__device__ inline Packed pack(const Floats<T>& values) {
  Packed result;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4)
      result.words[i] = __float_as_uint(values[i]);
    else
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result.words[i]) : "f"(values[2 * i + 1]), "f"(values[2 * i]));
  }
  return result;
}

// Values as they are after being stored in T.
template <class T>
__device__ inline Floats<T> rounded(const Floats<T>& values) {
  return unpack<T>(pack<T>(values));
}

// Sixteen bytes number `index` of an aligned run of T.
template <class T>
__device__ inline Packed load_packed(const T* pointer, std::int64_t index) {
  return reinterpret_cast<const Packed*>(pointer)[index];
}
// For what is read once: leaves the caches to others.
template <class T>
__device__ inline Packed load_packed_once(const T* pointer, std::int64_t index) {
  return load_streaming(reinterpret_cast<const Packed*>(pointer) + index);
}
template <class T>
__device__ inline void store_packed(T* pointer, std::int64_t index, const Packed& value) {
  reinterpret_cast<Packed*>(pointer)[index] = value;
}

}  // namespace quench::cuda
