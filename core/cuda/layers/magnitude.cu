#include "core/ops/adapters/magnitude.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/partial_sum.cuh"
#include "core/cuda/common/rows.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kRowsOfPart = 64;

// One CTA per row.
template <class T>
__global__ __launch_bounds__(kThreads) void row_norms_kernel(const T* x, std::int64_t width, float* out) {
  __shared__ float scratch[33];
  const T* row = x + std::int64_t{blockIdx.x} * width;
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
    const float value = to_float(row[i]);
    sum = fmaf(value, value, sum);
  }
  sum = block_reduce<kThreads>(sum, 0.0f, scratch, Sum());
  if (threadIdx.x == 0) out[blockIdx.x] = sqrtf(sum);
}

template <class T, class M>
struct ScaledLines {
  const T* x;
  const M* magnitude;  // null: factor 1
  const float* norms;
  const T* bias;  // optional
  T* out;
  std::int64_t x_stride, out_stride, rows, width;
  bool by_row;
};

// Factors and bias from cache.
template <class T, class M>
__global__ __launch_bounds__(kThreads) void scale_kernel(ScaledLines<T, M> lines) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads, count = lines.rows * lines.width;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t row = i / lines.width, column = i - row * lines.width;
    float value = to_float(lines.x[row * lines.x_stride + column]);
    if (lines.magnitude != nullptr) {
      const std::int64_t line = lines.by_row ? row : column;
      value *= to_float(lines.magnitude[line]) / lines.norms[line];
    }
    if (lines.bias != nullptr) value += to_float(lines.bias[column]);
    lines.out[row * lines.out_stride + column] = from_float<T>(value);
  }
}

// Grid: columns, row part. partial[part][column]: sum of dy * x / norm.
template <class T>
__global__ __launch_bounds__(kThreads) void column_dots_kernel(const T* dy, std::int64_t dy_stride, const T* x,
                                                               std::int64_t x_stride, const float* norms,
                                                               std::int64_t rows, std::int64_t width, float* partial) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= width) return;
  const std::int64_t first = std::int64_t{blockIdx.y} * kRowsOfPart, last = min(rows, first + kRowsOfPart);
  float sum = 0;
#pragma unroll 4
  for (std::int64_t row = first; row < last; ++row)
    sum = fmaf(to_float(dy[row * dy_stride + column]), to_float(x[row * x_stride + column]), sum);
  partial[std::int64_t{blockIdx.y} * width + column] = sum / norms[column];
}

void row_norms_cuda(const RowNormsArgs& args) {
  const OpLaunch launch("row_norms", {&args.x, &args.out});
  check_row_count("row_norms", args.x.size(0));
  if (args.x.size(0) == 0) return;
  dispatch<float, bfloat16>(args.x.dtype(), "row_norms", [&]<class T>() {
    launch(row_norms_kernel<T>, static_cast<unsigned>(args.x.size(0)), kThreads, 0, args.x.data<T>(), args.x.size(1),
           args.out.data<float>());
  });
}

template <class T, class M>
void scale(const OpLaunch& launch, const ScaleByMagnitudeArgs& args) {
  const bool scaled = args.magnitude.defined();
  const ScaledLines<T, M> lines{.x = args.x.data<T>(),
                                .magnitude = scaled ? args.magnitude.data<M>() : nullptr,
                                .norms = scaled ? args.norms.data<float>() : nullptr,
                                .bias = args.bias.defined() ? args.bias.data<T>() : nullptr,
                                .out = args.out.data<T>(),
                                .x_stride = args.x.stride(0),
                                .out_stride = args.out.stride(0),
                                .rows = args.x.size(0),
                                .width = args.x.size(1),
                                .by_row = args.by_row};
  if (args.x.numel() == 0) return;
  launch(scale_kernel<T, M>, dim3(strided_grid(launch.device(), args.x.numel(), kThreads, 8, 4)), kThreads, 0, lines);
}

void scale_by_magnitude_cuda(const ScaleByMagnitudeArgs& args) {
  const OpLaunch launch("scale_by_magnitude", {&args.x, &args.magnitude, &args.norms, &args.bias, &args.out});
  const DType magnitude = args.magnitude.defined() ? args.magnitude.dtype() : DType::f32;
  dispatch<float, bfloat16>(args.x.dtype(), "scale_by_magnitude", [&]<class T>() {
    dispatch<float, bfloat16>(magnitude, "scale_by_magnitude", [&]<class M>() { scale<T, M>(launch, args); });
  });
}

void magnitude_gradient_cuda(const MagnitudeGradientArgs& args) {
  const OpLaunch launch("magnitude_gradient", {&args.dy, &args.x, &args.norms, &args.out});
  const std::int64_t rows = args.x.size(0), width = args.x.size(1);
  const std::int64_t parts = (rows + kRowsOfPart - 1) / kRowsOfPart;
  QUENCH_CHECK_AS(ErrorCode::unsupported, parts < 65536, "magnitude_gradient: {} rows, at most {} are supported", rows,
                  65535 * kRowsOfPart);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor partial = Tensor::empty({parts, width}, DType::f32, args.x.device());
  if (parts > 0)
    dispatch<float, bfloat16>(args.x.dtype(), "magnitude_gradient", [&]<class T>() {
      launch(column_dots_kernel<T>,
             dim3(static_cast<unsigned>((width + kThreads - 1) / kThreads), static_cast<unsigned>(parts)), kThreads, 0,
             args.dy.data<T>(), args.dy.stride(0), args.x.data<T>(), args.x.stride(0), args.norms.data<float>(), rows,
             width, partial.data<float>());
    });
  sum_partial_rows(launch, partial, args.out, args.accumulate);
}

QUENCH_CUDA_KERNEL(row_norms_slot, row_norms_cuda);
QUENCH_CUDA_KERNEL(scale_by_magnitude_slot, scale_by_magnitude_cuda);
QUENCH_CUDA_KERNEL(magnitude_gradient_slot, magnitude_gradient_cuda);

}  // namespace
}  // namespace quench::cuda
