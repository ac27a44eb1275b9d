#pragma once
// Per-thread vectors of AdamW operands, and rounding on store.

#include <cstdint>
#include <type_traits>

#include "core/cuda/common/vector.cuh"
#include "core/cuda/optimizer/adamw_math.cuh"
#include "core/number/stochastic_rounding.h"

namespace quench::cuda {

QUENCH_HOST_DEVICE constexpr unsigned number_of(AdamWRounding what) {
  return static_cast<unsigned>(what);
}

// One instruction per bf16 element; nvcc emits two for every second.
template <class T, int N>
__device__ Vector<float, N> widen(const Vector<T, N>& value) {
  Vector<float, N> result;
  if constexpr (std::is_same_v<T, bfloat16> && N > 1) {
    const auto& pairs = *reinterpret_cast<const Vector<std::uint32_t, N / 2>*>(&value);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      result[2 * i] = __uint_as_float(pairs[i] << 16);
      result[2 * i + 1] = __uint_as_float(pairs[i] & 0xFFFF0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) result[i] = to_float(value[i]);
  }
  return result;
}

template <class T, int N>
__device__ Vector<T, N> nearest(const Vector<float, N>& value) {
  Vector<T, N> result;
#pragma unroll
  for (int i = 0; i < N; ++i) result[i] = from_float<T>(value[i]);
  return result;
}

// For N consecutive elements, for each of kWanted: a word per pair, or a single element's bits.
template <unsigned kWanted, int N>
class RandomBits {
 public:
  RandomBits() = default;
  // `first`: a multiple of N.
  __device__ RandomBits(std::uint64_t key, std::uint64_t step, std::uint64_t first) {
    const RoundingBlocks blocks = rounding_blocks<kWanted>(first / kRoundingsPerBlock, step, key);
#pragma unroll
    for (unsigned what = 0; what < 3; ++what) {
      if ((kWanted >> what & 1u) == 0) continue;
      const std::uint32_t(&block)[4] = blocks.words[what];
      if constexpr (N == 8) {
#pragma unroll
        for (int i = 0; i < 4; ++i) words_[what][i] = block[i];
      } else {
        const bool upper = first % 8 >= 4;
        const std::uint32_t word0 = upper ? block[2] : block[0], word1 = upper ? block[3] : block[1];
        if constexpr (N == 4) {
          words_[what][0] = word0;
          words_[what][1] = word1;
        } else {
          words_[what][0] = (first % 4 >= 2 ? word1 : word0) >> static_cast<unsigned>(first % 2 * 16) & 0xFFFFu;
        }
      }
    }
  }

  // NaN inputs: canonical_nan, if N > 1.
  template <class T>
  __device__ Vector<T, N> round(const Vector<float, N>& value, AdamWRounding what) const {
    const std::uint32_t(&words)[kWords] = words_[number_of(what)];
    if constexpr (std::is_same_v<T, float>) {
      return nearest<T>(value);
    } else if constexpr (N == 1) {
      return {stochastic_round_bf16(value[0], words[0])};
    } else {
      Vector<std::uint32_t, kWords> pairs;
#pragma unroll
      for (int i = 0; i < kWords; ++i) pairs[i] = stochastic_round_pair(value[2 * i], value[2 * i + 1], words[i]);
      return *reinterpret_cast<const Vector<T, N>*>(&pairs);
    }
  }

 private:
  static_assert((N == 8 || N == 4 || N == 1) && kRoundingsPerBlock == 8);
  static constexpr int kWords = (N + 1) / 2;
  std::uint32_t words_[3][kWords];
};

// Round to nearest even.
template <int N>
struct Nearest {
  template <class T>
  __device__ Vector<T, N> round(const Vector<float, N>& value, AdamWRounding /*what*/) const {
    return nearest<T>(value);
  }
};

}  // namespace quench::cuda
