// Zero fill of rows outside every sequence.

#include <algorithm>

#include "core/cuda/attention/attention_kernels.h"
#include "core/cuda/common/launch.h"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 128, kRangesPerLaunch = 64;
constexpr unsigned kMaxBlocks = 4096;

struct RowRanges {
  int count = 0;
  RowRange ranges[kRangesPerLaunch] = {};
};

// One row and head per iteration.
template <class T>
__global__ __launch_bounds__(kThreads) void clear_rows_kernel(const __grid_constant__ RowRanges rows, T* x,
                                                              std::int64_t row_stride, std::int64_t head_stride,
                                                              int dim, float* lse, LseLayout at) {
  const std::int64_t head = blockIdx.y;
  for (int i = 0; i < rows.count; ++i) {
    const RowRange range = rows.ranges[i];
    for (std::int64_t r = blockIdx.x; r < range.length; r += gridDim.x) {
      T* row = x + (range.begin + r) * row_stride + head * head_stride;
      for (int d = static_cast<int>(threadIdx.x); d < dim; d += kThreads) row[d] = from_float<T>(0.0f);
      if (lse != nullptr && threadIdx.x == 0)
        lse[range.begin * at.sequence + head * at.head + r * at.row] = -__int_as_float(0x7F800000);
    }
  }
}

}  // namespace

void clear_rows(const Tensor& x, std::span<const RowRange> rows, const Tensor& lse, const LseLayout& at) {
  if (x.numel() == 0) return;
  const OpLaunch launch("attention: rows in no sequence", {&x, &lse});
  while (!rows.empty()) {
    RowRanges batch;
    std::int64_t longest = 0;
    for (; batch.count < kRangesPerLaunch && batch.count < static_cast<int>(rows.size()); ++batch.count) {
      batch.ranges[batch.count] = rows[static_cast<std::size_t>(batch.count)];
      longest = std::max(longest, batch.ranges[batch.count].length);
    }
    rows = rows.subspan(static_cast<std::size_t>(batch.count));
    const dim3 grid(static_cast<unsigned>(std::min<std::int64_t>(longest, kMaxBlocks)),
                    static_cast<unsigned>(x.size(1)));
    const auto run =
        [&]<class T>(void (*kernel)(const RowRanges, T*, std::int64_t, std::int64_t, int, float*, LseLayout)) {
          launch(kernel, grid, kThreads, 0, batch, x.data<T>(), x.stride(0), x.stride(1), static_cast<int>(x.size(2)),
                 lse.defined() ? lse.data<float>() : nullptr, at);
        };
    if (x.dtype() == DType::f32)
      run(clear_rows_kernel<float>);
    else
      run(clear_rows_kernel<bfloat16>);
  }
}

}  // namespace quench::cuda
