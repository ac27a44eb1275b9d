// Biases of experts' projections. Memory bound: one pass over the rows.

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/reduce.cuh"
#include "core/ops/experts/group_bias.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 128, kColumns = 32, kSlices = 8;

// First expert that ends after `row`; `experts` if none.
__device__ inline int expert_of_row(const std::int32_t* ends, int experts, std::int64_t row) {
  int low = 0, high = experts;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (ends[middle] <= row)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// One CTA per row of `pieces` vectors.
template <int N, class T>
__global__ __launch_bounds__(kThreads) void add_group_bias_kernel(T* y, const T* bias, const std::int32_t* ends,
                                                                  const std::int32_t* pairs, const float* weights,
                                                                  int experts, int pieces) {
  const std::int64_t row = blockIdx.x;
  const std::int32_t pair = pairs[row];
  if (pair < 0) return;
  const std::int64_t expert = expert_of_row(ends, experts, row);
  if (expert == experts) return;
  const float weight = weights != nullptr ? weights[pair] : 1.0f;
  for (int i = static_cast<int>(threadIdx.x); i < pieces; i += kThreads) {
    Vector<float, N> values = unpack(load_packed<T, N>(y, row * pieces + i));
    const Vector<float, N> added = unpack(load_packed<T, N>(bias, expert * pieces + i));
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = fmaf(weight, added[j], values[j]);
    store_values(y, row * pieces + i, values);
  }
}

// Grid: column tile, expert. Rows of an expert are summed by slice, then over slices.
template <class T, class D>
__global__ __launch_bounds__(kColumns* kSlices) void bias_gradient_kernel(const T* dy, const std::int32_t* ends,
                                                                          const std::int32_t* pairs,
                                                                          const float* weights, D* dbias, int width,
                                                                          bool accumulate) {
  __shared__ float sums[kSlices][kColumns];
  const std::int64_t expert = blockIdx.y, column = std::int64_t{blockIdx.x} * kColumns + threadIdx.x;
  const std::int64_t begin = expert == 0 ? 0 : ends[expert - 1], end = ends[expert];
  float sum = 0;
  if (column < width)
    for (std::int64_t row = begin + threadIdx.y; row < end; row += kSlices) {
      const std::int32_t pair = pairs[row];
      if (pair < 0) continue;
      sum = fmaf(weights != nullptr ? weights[pair] : 1.0f, to_float(dy[row * width + column]), sum);
    }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
#pragma unroll
  for (int s = 1; s < kSlices; ++s) sum += sums[s][threadIdx.x];
  D* out = dbias + expert * width + column;
  *out = from_float<D>((accumulate ? to_float(*out) : 0.0f) + sum);
}

// One CTA per row.
template <class T>
__global__ __launch_bounds__(kThreads) void bias_weight_gradient_kernel(const T* dy, const T* bias,
                                                                        const std::int32_t* ends,
                                                                        const std::int32_t* pairs, float* dweights,
                                                                        int experts, int width) {
  __shared__ float scratch[33];
  const std::int64_t row = blockIdx.x;
  const std::int32_t pair = pairs[row];
  if (pair < 0) return;
  const std::int64_t expert = expert_of_row(ends, experts, row);
  if (expert == experts) return;
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads)
    sum = fmaf(to_float(dy[row * width + i]), to_float(bias[expert * width + i]), sum);
  sum = block_reduce<kThreads>(sum, 0.0f, scratch, Sum());
  if (threadIdx.x == 0) dweights[pair] = sum;
}

const float* weights_of(const Tensor& weights) {
  return weights.defined() ? weights.data<float>() : nullptr;
}

void group_bias_cuda(const GroupBiasArgs& args) {
  const OpLaunch launch("add_group_bias", {&args.y, &args.bias, &args.ends, &args.pairs, &args.weights});
  const std::int64_t width = args.y.size(1);
  dispatch<float, bfloat16>(args.y.dtype(), "add_group_bias", [&]<class T>() {
    constexpr int kWidth = kVectorWidth<T>;
    const bool wide =
        rows_are_wide<T>(args.y.raw_data(), width, width) && rows_are_wide<T>(args.bias.raw_data(), width, width);
    launch(wide ? add_group_bias_kernel<kWidth, T> : add_group_bias_kernel<1, T>, static_cast<unsigned>(args.y.size(0)),
           kThreads, 0, args.y.data<T>(), static_cast<const T*>(args.bias.data<T>()),
           static_cast<const std::int32_t*>(args.ends.data<std::int32_t>()),
           static_cast<const std::int32_t*>(args.pairs.data<std::int32_t>()), weights_of(args.weights),
           static_cast<int>(args.ends.size(0)), static_cast<int>(wide ? width / kWidth : width));
  });
}

template <class T, class D>
void bias_gradient(const OpLaunch& launch, const GroupBiasBackwardArgs& args) {
  const std::int64_t width = args.dy.size(1);
  const dim3 grid(static_cast<unsigned>((width + kColumns - 1) / kColumns), static_cast<unsigned>(args.ends.size(0)));
  launch(bias_gradient_kernel<T, D>, grid, dim3(kColumns, kSlices), 0, static_cast<const T*>(args.dy.data<T>()),
         static_cast<const std::int32_t*>(args.ends.data<std::int32_t>()),
         static_cast<const std::int32_t*>(args.pairs.data<std::int32_t>()), weights_of(args.weights),
         args.dbias.data<D>(), static_cast<int>(width), args.accumulate);
}

void group_bias_backward_cuda(const GroupBiasBackwardArgs& args) {
  const OpLaunch launch("group_bias_backward",
                        {&args.dy, &args.bias, &args.ends, &args.pairs, &args.weights, &args.dbias, &args.dweights});
  dispatch<float, bfloat16>(args.dy.dtype(), "group_bias_backward", [&]<class T>() {
    if (args.dbias.defined() && args.dbias.dtype() == DType::f32) bias_gradient<T, float>(launch, args);
    if (args.dbias.defined() && args.dbias.dtype() != DType::f32) bias_gradient<T, T>(launch, args);
    if (!args.dweights.defined()) return;
    Tensor(args.dweights).zero();
    if (args.dy.size(0) == 0) return;
    launch(bias_weight_gradient_kernel<T>, static_cast<unsigned>(args.dy.size(0)), kThreads, 0,
           static_cast<const T*>(args.dy.data<T>()), static_cast<const T*>(args.bias.data<T>()),
           static_cast<const std::int32_t*>(args.ends.data<std::int32_t>()),
           static_cast<const std::int32_t*>(args.pairs.data<std::int32_t>()), args.dweights.data<float>(),
           static_cast<int>(args.ends.size(0)), static_cast<int>(args.dy.size(1)));
  });
}

QUENCH_CUDA_KERNEL(group_bias_slot, group_bias_cuda);
QUENCH_CUDA_KERNEL(group_bias_backward_slot, group_bias_backward_cuda);

}  // namespace
}  // namespace quench::cuda
