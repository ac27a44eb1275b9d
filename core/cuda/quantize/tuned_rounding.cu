#include "core/ops/quantize/tuned_rounding.h"

#include "core/cuda/quantize/quantize_common.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroups = kThreads / kTunedLanes;  // per CTA, a warp each
static_assert(kTunedLanes == 32);

struct Pointers {
  const float *w, *bounds;
  float *offsets, *factors;
  std::int64_t groups, size;
  explicit Pointers(const TunedRounding& of)
      : w(of.w.data<float>()),
        bounds(of.bounds.data<float>()),
        offsets(of.offsets.data<float>()),
        factors(of.factors.data<float>()),
        groups(of.bounds.size(0)),
        size(of.w.numel() / groups) {}
  [[nodiscard]] unsigned ctas() const { return static_cast<unsigned>((groups + kGroups - 1) / kGroups); }
};

template <class Element, class T>
__global__ __launch_bounds__(kThreads) void tuned_values_kernel(Pointers of, GridForm form, T* out, float multiplier) {
  const std::int64_t g = std::int64_t{blockIdx.x} * kGroups + threadIdx.x / kTunedLanes;
  if (g >= of.groups) return;
  const GridRounding<Element> rounding(form);
  const GridScale scale = tuned_group<Element>(form, of.bounds, of.factors, g).scale;
  const std::int64_t end = (g + 1) * of.size;
#pragma unroll 4
  for (std::int64_t i = g * of.size + threadIdx.x % kTunedLanes; i < end; i += kTunedLanes)
    out[i] =
        from_float<T>(scale.value(rounding(of.w[i] / scale.scale, of.offsets[i], scale.zero_point).code) * multiplier);
}

// Lane 0 has the sum of tuned_rounding.h.
__device__ float sum_of_lanes(float own) {
#pragma unroll
  for (int half = kTunedLanes / 2; half > 0; half /= 2) own += __shfl_down_sync(0xFFFFFFFFu, own, half);
  return own;
}

template <class Element>
__global__ __launch_bounds__(kThreads) void tuned_step_kernel(Pointers of, GridForm form, const float* gradient,
                                                              float rate) {
  const std::int64_t g = std::int64_t{blockIdx.x} * kGroups + threadIdx.x / kTunedLanes;
  if (g >= of.groups) return;  // whole warps
  const GridRounding<Element> rounding(form);
  const TunedGroup group = tuned_group<Element>(form, of.bounds, of.factors, g);
  const std::int64_t end = (g + 1) * of.size;
  float by_scale = 0.0f, by_zero = 0.0f;
#pragma unroll 4
  for (std::int64_t i = g * of.size + threadIdx.x % kTunedLanes; i < end; i += kTunedLanes) {
    float offset = of.offsets[i];
    const TunedTerms terms = step_offset(rounding, group.scale, of.w[i], gradient[i], rate, offset);
    of.offsets[i] = offset;
    by_scale += terms.scale;
    by_zero += terms.zero_point;
  }
  if (!form.continuous()) return;
  const TunedTerms sums{sum_of_lanes(by_scale), sum_of_lanes(by_zero)};
  if (threadIdx.x % kTunedLanes == 0) step_factors(form, group, sums, rate, of.factors + 2 * g);
}

void tuned_values_cuda(const TunedValuesArgs& args) {
  const TunedRounding& of = args.rounding;
  const OpLaunch launch("tuned_values", {&of.w, &of.offsets, &of.bounds, &of.factors, &args.out});
  const Pointers pointers(of);
  dispatch<float, bfloat16>(args.out.dtype(), "tuned_values", [&]<class T>() {
    dispatch_grid(of.grid, "tuned_values", [&]<class Element>() {
      launch(tuned_values_kernel<Element, T>, pointers.ctas(), kThreads, 0, pointers, of.grid, args.out.data<T>(),
             args.multiplier);
    });
  });
}

void tuned_step_cuda(const TunedStepArgs& args) {
  const TunedRounding& of = args.rounding;
  const OpLaunch launch("tuned_step", {&of.w, &of.offsets, &of.bounds, &of.factors, &args.gradient});
  const Pointers pointers(of);
  dispatch_grid(of.grid, "tuned_step", [&]<class Element>() {
    launch(tuned_step_kernel<Element>, pointers.ctas(), kThreads, 0, pointers, of.grid, args.gradient.data<float>(),
           args.rate);
  });
}

QUENCH_CUDA_KERNEL(tuned_values_slot, tuned_values_cuda);
QUENCH_CUDA_KERNEL(tuned_step_slot, tuned_step_cuda);

}  // namespace
}  // namespace quench::cuda
