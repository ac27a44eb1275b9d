
#include <algorithm>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/partial_sum.cuh"
#include "core/cuda/common/pdl.cuh"
#include "core/ops/elementwise.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;

// Strides and widths in words; kUnroll words in flight. With `rows`, row i is stored to row rows[i] if below to_rows.
template <class Word>
__global__ __launch_bounds__(kThreads) void copy_rows_kernel(const Word* from, std::int64_t from_stride, Word* to,
                                                             std::int64_t to_stride, const std::int32_t* rows,
                                                             std::int64_t to_rows, std::int64_t width,
                                                             std::int64_t count) {
  pdl_sync();
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += kUnroll * step) {
    Word words[kUnroll];
    std::int64_t target[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t word = i + u * step;
      if (word >= count) continue;
      const auto row = static_cast<std::int64_t>(static_cast<std::uint64_t>(word) / static_cast<std::uint64_t>(width));
      words[u] = from[row * from_stride + word - row * width];
      const std::int64_t to_row = rows != nullptr ? rows[row] : row;
      target[u] = to_row >= 0 && to_row < to_rows ? to_row * to_stride + word - row * width : -1;
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (i + u * step < count && target[u] >= 0) to[target[u]] = words[u];
  }
}

void copy_rows(const CopyRowsArgs& args) {
  const OpLaunch launch("copy_rows", {&args.from, &args.to, &args.rows});
  const auto element = static_cast<std::int64_t>(byte_size(args.from.dtype()));
  const std::int64_t n = args.from.size(0), width = args.from.size(1) * element;  // bytes
  const std::int64_t from_stride = args.from.stride(0) * element, to_stride = args.to.stride(0) * element;
  const std::int32_t* rows = args.rows.defined() ? args.rows.data<std::int32_t>() : nullptr;
  const auto run = [&]<class Word>() {
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(Word));
    const std::int64_t count = n * (width / kSize);
    launch.early(n, copy_rows_kernel<Word>, strided_grid(launch.device(), count, kThreads * kUnroll, 8, 4), kThreads, 0,
                 static_cast<const Word*>(args.from.raw_data()), from_stride / kSize,
                 static_cast<Word*>(args.to.raw_data()), to_stride / kSize, rows, args.to.size(0), width / kSize,
                 count);
  };
  if (rows_are_wide<std::byte>(args.from.raw_data(), from_stride, width) &&
      rows_are_wide<std::byte>(args.to.raw_data(), to_stride, width))
    run.template operator()<uint4>();
  else if (element == 4)
    run.template operator()<std::uint32_t>();
  else if (element == 2)
    run.template operator()<std::uint16_t>();
  else
    run.template operator()<std::uint8_t>();
}

constexpr int kLanes = 32, kSlices = 8;

// A CTA sums 32 vectors of columns over the rows of its y coordinate, every eighth row per warp, into one partial row.
template <class T, bool kWide>
__global__ __launch_bounds__(kLanes* kSlices) void column_sum_kernel(const T* x, std::int64_t stride, std::int64_t rows,
                                                                     std::int64_t width, float* partial) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  __shared__ float sums[kSlices][kLanes * kWidth];
  const std::int64_t first_column = std::int64_t{blockIdx.x} * kLanes * kWidth;
  const std::int64_t piece = std::int64_t{blockIdx.x} * kLanes + threadIdx.x;
  Vector<float, kWidth> sum = {};
  if (piece * kWidth < width) {
    const std::int64_t step = std::int64_t{gridDim.y} * kSlices;
#pragma unroll 4
    for (std::int64_t row = std::int64_t{blockIdx.y} * kSlices + threadIdx.y; row < rows; row += step) {
      const Vector<float, kWidth> values = unpack(load_packed<T, kWidth>(x + row * stride, piece));
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum[j] += values[j];
    }
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) sums[threadIdx.y][threadIdx.x * kWidth + j] = sum[j];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y * kLanes + threadIdx.x); i < kLanes * kWidth; i += kLanes * kSlices) {
    if (first_column + i >= width) continue;
    float total = 0;
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) total += sums[slice][i];
    partial[blockIdx.y * width + first_column + i] = total;
  }
}

void column_sum(const ColumnSumArgs& args) {
  const OpLaunch launch("column_sum", {&args.x, &args.out});
  const std::int64_t rows = args.x.size(0), width = args.x.size(1), stride = args.x.stride(0);
  const MemoryScope scope(MemoryCategory::workspace);
  dispatch<float, bfloat16>(args.x.dtype(), "column_sum", [&]<class T>() {
    const bool wide = rows_are_wide<T>(args.x.raw_data(), stride, width);
    const std::int64_t columns = kLanes * (wide ? kVectorWidth<T> : 1), tiles = (width + columns - 1) / columns;
    const std::int64_t parts =
        std::clamp<std::int64_t>(4 * sm_count(launch.device()) / tiles, 1, (rows + kSlices - 1) / kSlices);
    const Tensor partial = Tensor::empty(Shape{parts, width}, DType::f32, launch.device());
    launch(wide ? column_sum_kernel<T, true> : column_sum_kernel<T, false>,
           dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(parts)), dim3(kLanes, kSlices), 0, args.x.data<T>(),
           stride, rows, width, partial.data<float>());
    sum_partial_rows(launch, partial, args.out, args.accumulate);
  });
}

QUENCH_CUDA_KERNEL(copy_rows_slot, copy_rows);
QUENCH_CUDA_KERNEL(column_sum_slot, column_sum);

}  // namespace
}  // namespace quench::cuda
