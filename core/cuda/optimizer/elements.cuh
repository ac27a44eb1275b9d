#pragma once
// Consecutive f32/bf16 elements; a uniform branch on the dtype, cheaper than a kernel per combination.

#include <initializer_list>

#include "core/cuda/optimizer/adamw_values.cuh"
#include "core/tensor/tensor.h"

namespace quench::cuda {

[[nodiscard]] inline bool are_wide(std::initializer_list<const Tensor*> tensors) {
  std::uintptr_t addresses = 0;
  for (const Tensor* x : tensors)
    if (x->defined()) addresses |= reinterpret_cast<std::uintptr_t>(x->raw_data());
  return addresses % 16 == 0;
}

struct Elements {
  void* data;
  bool is_bf16;

  [[nodiscard]] static Elements of(const Tensor& t) { return {t.raw_data(), t.dtype() == DType::bf16}; }

  // i: a multiple of N. `wide`: aligned.
  template <int N>
  [[nodiscard]] __device__ Vector<float, N> load(std::int64_t i, bool wide = true) const {
    return is_bf16 ? load_as<bfloat16, N>(i, wide) : load_as<float, N>(i, wide);
  }
  // Round to nearest even.
  template <int N>
  __device__ void store(std::int64_t i, const Vector<float, N>& x, bool wide = true) const {
    if (is_bf16)
      store_as(i, nearest<bfloat16>(x), wide);
    else
      store_as(i, nearest<float>(x), wide);
  }
  // bf16 tensors only.
  template <unsigned kWanted, int N>
  __device__ void store_stochastic(std::int64_t i, Vector<float, N> x, const RandomBits<kWanted, N>& random,
                                   AdamWRounding what, bool wide = true) const {
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = canonical_nan(x[j]);
    store_as(i, random.template round<bfloat16>(x, what), wide);
  }

 private:
  // By intrinsic: nvcc splits an assignment.
  template <class T, int N>
  __device__ static void write(T* to, const Vector<T, N>& piece) {
    using Word = std::conditional_t<sizeof(piece) == 16, int4, std::conditional_t<sizeof(piece) == 8, int2, int>>;
    static_assert(N == 1 || sizeof(piece) == sizeof(Word));
    if constexpr (N > 1) __stcs(reinterpret_cast<Word*>(to), *reinterpret_cast<const Word*>(&piece));
  }

  template <class T, int N>
  static constexpr int kPart = N * sizeof(T) <= 16 ? N : static_cast<int>(16 / sizeof(T));

  template <class T, int N>
  __device__ Vector<float, N> load_as(std::int64_t i, bool wide) const {
    const T* from = static_cast<const T*>(data) + i;
    constexpr int kWidth = kPart<T, N>;
    Vector<float, N> result;
#pragma unroll
    for (int part = 0; part < N; part += kWidth) {
      Vector<T, kWidth> piece;
      if (wide)
        piece = *reinterpret_cast<const Vector<T, kWidth>*>(from + part);
      else
#pragma unroll
        for (int j = 0; j < kWidth; ++j) piece[j] = from[part + j];
      const Vector<float, kWidth> values = widen(piece);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) result[part + j] = values[j];
    }
    return result;
  }

  template <class T, int N>
  __device__ void store_as(std::int64_t i, const Vector<T, N>& value, bool wide) const {
    T* to = static_cast<T*>(data) + i;
    constexpr int kWidth = kPart<T, N>;
#pragma unroll
    for (int part = 0; part < N; part += kWidth) {
      Vector<T, kWidth> piece;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) piece[j] = value[part + j];
      if (wide && kWidth > 1)
        write(to + part, piece);
      else
#pragma unroll
        for (int j = 0; j < kWidth; ++j) to[part + j] = piece[j];
    }
  }
};

}  // namespace quench::cuda
