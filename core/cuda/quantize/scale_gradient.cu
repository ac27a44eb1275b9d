// Gradients of trained scales: a warp sums a group.

#include "core/cuda/common/launch.h"
#include "core/cuda/common/reduce.cuh"
#include "core/ops/quantize/scale_gradient.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

template <class T, class G>
__global__ __launch_bounds__(kThreads) void scale_gradient_kernel(const T* w, const G* dvalue, const float* scales,
                                                                  float* out, std::int64_t groups,
                                                                  std::int64_t elements, float lowest, float highest,
                                                                  float factor) {
  const std::int64_t group = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (group >= groups) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const float inverse = 1.0f / scales[group];
  float sum = 0.0f;
  for (std::int64_t i = lane; i < elements; i += 32) {
    const std::int64_t at = group * elements + i;
    const float exact = float(w[at]) * inverse, code = rintf(exact);
    sum += float(dvalue[at]) * (code < lowest ? lowest : code > highest ? highest : code - exact);
  }
  sum = warp_reduce(sum, Sum());
  if (lane == 0) out[group] = sum * factor;
}

void scale_gradient_cuda(const ScaleGradientArgs& args) {
  const OpLaunch launch("scale_gradient", {&args.w, &args.dvalue, &args.scales, &args.out});
  const IntRange range = int_range(args.options.bits);
  const std::int64_t groups = args.scales.numel(), elements = args.w.numel() / groups;
  const auto blocks = static_cast<unsigned>((groups + kWarps - 1) / kWarps);
  dispatch<float, bfloat16>(args.w.dtype(), "scale_gradient", [&]<class T>() {
    dispatch<float, bfloat16>(args.dvalue.dtype(), "scale_gradient", [&]<class G>() {
      launch(scale_gradient_kernel<T, G>, blocks, kThreads, 0, static_cast<const T*>(args.w.raw_data()),
             static_cast<const G*>(args.dvalue.raw_data()), static_cast<const float*>(args.scales.raw_data()),
             static_cast<float*>(args.out.raw_data()), groups, elements, static_cast<float>(range.lowest),
             static_cast<float>(range.highest), args.factor);
    });
  });
}

QUENCH_CUDA_KERNEL(scale_gradient_slot, scale_gradient_cuda);

}  // namespace
}  // namespace quench::cuda
