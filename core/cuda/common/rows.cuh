#pragma once
// Rows of [N,H] and [N,heads,H].

#include <cstdint>

#include "core/cuda/common/reduce.cuh"
#include "core/cuda/common/vector.cuh"
#include "core/tensor/tensor.h"

namespace quench::cuda {

// 0 .. N*heads-1, 32 bits for cheap division; below 2^31: a stride past the end cannot wrap.
struct RowPosition {
  std::uint32_t token, head;
};
struct RowNumbering {
  std::uint32_t heads = 1;

  explicit RowNumbering(const Tensor& x) : heads(x.rank() == 3 ? static_cast<std::uint32_t>(x.size(1)) : 1) {}
  __device__ RowPosition operator()(std::uint32_t row) const {
    if (heads == 1) return {row, 0};
    const std::uint32_t token = row / heads;
    return {token, row - token * heads};
  }
};

// Contiguous last axis.
template <class T>
struct Rows {
  T* base = nullptr;  // null: absent
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;

  Rows() = default;
  explicit Rows(const Tensor& t) {
    if (!t.defined()) return;
    base = static_cast<T*>(t.raw_data());
    token_stride = t.stride(0);
    if (t.rank() == 3 && t.size(1) > 1) head_stride = t.stride(1);
  }

  // Every row allows 16-byte accesses.
  [[nodiscard]] bool wide(std::int64_t width) const {
    return base == nullptr || (rows_are_wide<T>(base, token_stride, width) && head_stride % kVectorWidth<T> == 0);
  }
  __device__ T* operator[](RowPosition row) const { return base + row.token * token_stride + row.head * head_stride; }
};

inline void check_row_count(std::string_view op, std::int64_t rows) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, rows < std::int64_t{1} << 31, "{}: {} rows, fewer than 2^31 are supported",
                  op, rows);
}

struct BlockBarrier {
  __device__ void operator()() const { __syncthreads(); }
};

// Sum over a row's kGroup threads, in each. kGroup: a power of two within a warp (<= 32), else the CTA or the threads
// of `barrier`. `scratch` is per group and double-buffered by `turn`: one barrier per call.
struct GroupScratch {
  float values[2][32];
};
template <int kGroup, class Barrier = BlockBarrier>
__device__ inline float group_sum(float value, GroupScratch& scratch, int& turn, Barrier barrier = {}) {
#pragma unroll
  for (int offset = (kGroup < 32 ? kGroup : 32) / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
  if constexpr (kGroup > 32) {
    constexpr int kWarps = kGroup / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float* values = scratch.values[turn];
    turn ^= 1;
    if (lane == 0) values[threadIdx.x % kGroup / 32] = value;
    barrier();
    value = lane < kWarps ? values[lane] : 0.0f;
#pragma unroll
    for (int offset = kWarps / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
    if constexpr (kWarps < 32) value = __shfl_sync(0xFFFFFFFFu, value, 0);
  }
  return value;
}

}  // namespace quench::cuda
