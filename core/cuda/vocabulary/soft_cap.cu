#include "core/ops/soft_cap.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

// Memory bound: 2 (backward 3) elements of traffic per logit.
template <int N, class T>
__global__ __launch_bounds__(kThreads) void soft_cap_kernel(T* x, std::int64_t count, float inner, float cap) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    Vector<float, N> values = unpack(load_packed<T, N>(x, i));
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = cap * tanhf(inner * values[j]);
    store_values(x, i, values);
  }
}

template <int N, class T>
__global__ __launch_bounds__(kThreads) void soft_cap_backward_kernel(T* dx, const T* y, std::int64_t count,
                                                                     float factor, float cap) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    Vector<float, N> gradient = unpack(load_packed<T, N>(dx, i));
    const Vector<float, N> values = unpack(load_packed<T, N>(y, i));
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float bounded = values[j] / cap;
      gradient[j] *= factor * fmaf(-bounded, bounded, 1.0f);
    }
    store_values(dx, i, gradient);
  }
}

template <class T>
bool in_vectors(const Tensor& t) {
  constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
  return t.numel() % kWidth == 0 && reinterpret_cast<std::uintptr_t>(t.raw_data()) % 16 == 0;
}

void soft_cap_cuda(const SoftCapArgs& args) {
  const OpLaunch launch("soft_cap", {&args.x});
  dispatch<float, bfloat16>(args.x.dtype(), "soft_cap", [&]<class T>() {
    constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
    const bool wide = in_vectors<T>(args.x);
    const std::int64_t count = args.x.numel() / (wide ? kWidth : 1);
    launch(wide ? soft_cap_kernel<kWidth, T> : soft_cap_kernel<1, T>, strided_grid(launch.device(), count, kThreads, 8),
           kThreads, 0, args.x.data<T>(), count, args.factor / args.cap, args.cap);
  });
}

void soft_cap_backward_cuda(const SoftCapBackwardArgs& args) {
  const OpLaunch launch("soft_cap_backward", {&args.dx, &args.y});
  dispatch<float, bfloat16>(args.dx.dtype(), "soft_cap_backward", [&]<class T>() {
    constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
    const bool wide = in_vectors<T>(args.dx) && in_vectors<T>(args.y);
    const std::int64_t count = args.dx.numel() / (wide ? kWidth : 1);
    launch(wide ? soft_cap_backward_kernel<kWidth, T> : soft_cap_backward_kernel<1, T>,
           strided_grid(launch.device(), count, kThreads, 8), kThreads, 0, args.dx.data<T>(),
           static_cast<const T*>(args.y.data<T>()), count, args.factor, args.cap);
  });
}

QUENCH_CUDA_KERNEL(soft_cap_slot, soft_cap_cuda);
QUENCH_CUDA_KERNEL(soft_cap_backward_slot, soft_cap_backward_cuda);

}  // namespace
}  // namespace quench::cuda
