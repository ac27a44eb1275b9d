#pragma once
// Second pass of column sums; deterministic.

#include "core/cuda/common/launch.h"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {

inline constexpr int kPartialSumColumns = 32;
inline constexpr int kPartialSumSlices = 32;

// A thread adds every 32nd partial row of a column, four in flight; the 32 results are added in order. Mostly from L2.
template <class G>
__global__ __launch_bounds__(kPartialSumColumns* kPartialSumSlices) void partial_sum_kernel(const float* partial,
                                                                                            int count,
                                                                                            std::int64_t width,
                                                                                            bool accumulate, G* out) {
  __shared__ float sums[kPartialSumSlices][kPartialSumColumns];
  const std::int64_t column = std::int64_t{blockIdx.x} * kPartialSumColumns + threadIdx.x;
  float sum = 0;
  if (column < width) {
#pragma unroll 4
    for (int row = static_cast<int>(threadIdx.y); row < count; row += kPartialSumSlices)
      sum += partial[row * width + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  float total = 0;
#pragma unroll
  for (int slice = 0; slice < kPartialSumSlices; ++slice) total += sums[slice][threadIdx.x];
  if (accumulate) total += to_float(out[column]);
  out[column] = from_float<G>(total);
}

// `partial`: f32 [count,width], contiguous.
inline void sum_partial_rows(const OpLaunch& launch, const Tensor& partial, const Tensor& out, bool accumulate) {
  const std::int64_t width = partial.size(1);
  const auto blocks = static_cast<unsigned>((width + kPartialSumColumns - 1) / kPartialSumColumns);
  dispatch<float, bfloat16>(out.dtype(), "sum_partial_rows", [&]<class G>() {
    launch(partial_sum_kernel<G>, blocks, dim3(kPartialSumColumns, kPartialSumSlices), 0, partial.data<float>(),
           static_cast<int>(partial.size(0)), width, accumulate, out.data<G>());
  });
}

}  // namespace quench::cuda
