#pragma once
// Rows of [N,H] and [N,heads,H] tensors for kernels that give each row to a group of threads.

#include <cstdint>

#include "core/cuda/reduce.cuh"
#include "core/cuda/vector.cuh"
#include "core/tensor.h"

namespace quench::cuda {

// Rows are numbered 0 .. N*heads-1; their last axis is contiguous. Row numbers are 32 bits: divisions by the number of
// heads are cheap, and 2^32 rows would need more memory than a device has for their statistics alone.
template <class T>
struct Rows {
  T* base = nullptr;
  std::int64_t outer = 0;
  std::int64_t inner = 0;
  std::uint32_t inner_count = 1;

  Rows() = default;
  explicit Rows(const Tensor& t) {
    if (!t.defined()) return;
    base = static_cast<T*>(t.raw_data());
    outer = t.stride(0);
    if (t.rank() != 3 || t.size(1) == 1) return;
    if (outer == t.stride(1) * t.size(1)) {  // one run of rows: no division
      outer = t.stride(1);
      return;
    }
    inner = t.stride(1);
    inner_count = static_cast<std::uint32_t>(t.size(1));
  }

  // True if every row may be read in 16-byte pieces (an undefined tensor has no rows that could not).
  [[nodiscard]] bool wide(std::int64_t width) const {
    return base == nullptr || (rows_are_wide<T>(base, outer, width) && inner % kVectorWidth<T> == 0);
  }
  __device__ T* operator[](std::uint32_t row) const {
    if (inner_count == 1) return base + row * outer;
    const std::uint32_t token = row / inner_count;
    return base + token * outer + (row - token * inner_count) * inner;
  }
};

inline void check_row_count(std::string_view op, std::int64_t rows) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, rows <= std::int64_t{0xFFFFFFFF},
                  "{}: {} rows, at most 2^32 - 1 are supported", op, rows);
}

// Sum over the kGroup threads that share a row; every thread gets it. kGroup is a power of two: groups of at most 32
// lie within a warp, a larger one is the whole block. The block calls it together. `scratch` belongs to the block and
// `turn` to the thread: the two halves of the scratch alternate, so that one barrier a call is enough.
struct GroupScratch {
  float values[2][32];
};
template <int kGroup>
__device__ inline float group_sum(float value, GroupScratch& scratch, int& turn) {
#pragma unroll
  for (int offset = (kGroup < 32 ? kGroup : 32) / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
  if constexpr (kGroup > 32) {
    constexpr int kWarps = kGroup / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float* values = scratch.values[turn];
    turn ^= 1;
    if (lane == 0) values[threadIdx.x / 32] = value;
    __syncthreads();
    value = lane < kWarps ? values[lane] : 0.0f;
#pragma unroll
    for (int offset = kWarps / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
    if constexpr (kWarps < 32) value = __shfl_sync(0xFFFFFFFFu, value, 0);
  }
  return value;
}

}  // namespace quench::cuda
