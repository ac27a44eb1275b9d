#include "core/ops/reduce_sum.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/reduce.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 1024;

// One CTA: inputs (micro-batch losses) are small.
__global__ __launch_bounds__(kThreads) void reduce_sum_kernel(const float* x, std::int64_t n, float scale, float* out) {
  __shared__ double scratch[33];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) sum += static_cast<double>(x[i]);
  sum = block_reduce<kThreads>(sum, 0.0, scratch, Sum());
  if (threadIdx.x == 0) *out = static_cast<float>(sum * static_cast<double>(scale));
}

void reduce_sum(const ReduceSumArgs& args) {
  const OpLaunch launch("reduce_sum", {&args.x, &args.out});
  launch(reduce_sum_kernel, 1, kThreads, 0, args.x.data<float>(), args.x.numel(), args.scale, args.out.data<float>());
}

QUENCH_CUDA_KERNEL(reduce_sum_slot, reduce_sum);

}  // namespace
}  // namespace quench::cuda
