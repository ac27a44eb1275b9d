// One CTA sums the counts in a fixed order.

#include "core/cuda/common/launch.h"
#include "core/ops/experts/expert_bias.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

__global__ __launch_bounds__(kThreads) void expert_bias_kernel(const float* counts, int experts, float* bias, int first,
                                                               int count, float speed) {
  __shared__ double sums[kThreads];
  double sum = 0;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads) sum += static_cast<double>(counts[e]);
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  const double mean = sums[0] / experts;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const auto load = static_cast<double>(counts[first + i]);
    if (load != mean) bias[i] += load < mean ? speed : -speed;
  }
}

void expert_bias(const ExpertBiasArgs& args) {
  const OpLaunch launch("expert_bias", {&args.counts, &args.bias});
  launch(expert_bias_kernel, 1, kThreads, 0, args.counts.data<float>(), static_cast<int>(args.counts.size(0)),
         args.bias.data<float>(), static_cast<int>(args.first), static_cast<int>(args.bias.size(0)), args.speed);
}

QUENCH_CUDA_KERNEL(expert_bias_slot, expert_bias);

}  // namespace
}  // namespace quench::cuda
