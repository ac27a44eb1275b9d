#include "core/cuda/gemm/gemm_empty.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

template <class C, class Bias>
__global__ void empty_product_kernel(C* c, std::int64_t stride, std::int64_t n, std::int64_t elements, float beta,
                                     const Bias* bias) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < elements; i += step) {
    C& value = c[i / n * stride + i % n];
    const float kept = beta == 0.0f ? 0.0f : beta * to_float(value);
    value = from_float<C>(kept + (bias == nullptr ? 0.0f : to_float(bias[i % n])));
  }
}

}  // namespace

void gemm_empty(const Tensor& c, float beta, const Tensor& bias) {
  const OpLaunch launch("gemm", {&c, &bias});
  dispatch<float, bfloat16>(c.dtype(), "gemm", [&]<class C>() {
    dispatch<float, bfloat16>(bias.defined() ? bias.dtype() : c.dtype(), "gemm", [&]<class Bias>() {
      launch(empty_product_kernel<C, Bias>, strided_grid(launch.device(), c.numel(), kThreads), kThreads, 0,
             c.data<C>(), c.stride(0), c.size(1), c.numel(), beta, bias.defined() ? bias.data<Bias>() : nullptr);
    });
  });
}

}  // namespace quench::cuda
