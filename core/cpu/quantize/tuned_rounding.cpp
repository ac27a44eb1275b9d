#include "core/ops/quantize/tuned_rounding.h"

#include <algorithm>

namespace quench::cpu {
namespace {

void tuned_values_cpu(const TunedValuesArgs& args) {
  const TunedRounding& of = args.rounding;
  const std::int64_t groups = of.bounds.size(0), size = of.w.numel() / groups;
  const float *w = of.w.data<float>(), *offsets = of.offsets.data<float>();
  const float *bounds = of.bounds.data<float>(), *factors = of.factors.data<float>();
  dispatch<float, bfloat16>(args.out.dtype(), "tuned_values", [&]<class T>() {
    T* out = args.out.data<T>();
    dispatch_grid(of.grid, "tuned_values", [&]<class Element>() {
      const GridRounding<Element> rounding(of.grid);
#pragma omp parallel for schedule(static)
      for (std::int64_t g = 0; g < groups; ++g) {
        const GridScale scale = tuned_group<Element>(of.grid, bounds, factors, g).scale;
        for (std::int64_t i = g * size; i < (g + 1) * size; ++i)
          out[i] = T(scale.value(rounding(w[i] / scale.scale, offsets[i], scale.zero_point).code) * args.multiplier);
      }
    });
  });
}

float sum_of(float (&lanes)[kTunedLanes]) {
  for (int half = kTunedLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

void tuned_step_cpu(const TunedStepArgs& args) {
  const TunedRounding& of = args.rounding;
  const std::int64_t groups = of.bounds.size(0), size = of.w.numel() / groups;
  const float *w = of.w.data<float>(), *gradient = args.gradient.data<float>(), *bounds = of.bounds.data<float>();
  float *offsets = of.offsets.data<float>(), *factors = of.factors.data<float>();
  dispatch_grid(of.grid, "tuned_step", [&]<class Element>() {
    const GridRounding<Element> rounding(of.grid);
#pragma omp parallel for schedule(static)
    for (std::int64_t g = 0; g < groups; ++g) {
      const TunedGroup group = tuned_group<Element>(of.grid, bounds, factors, g);
      float by_scale[kTunedLanes] = {}, by_zero[kTunedLanes] = {};
      for (std::int64_t first = g * size; first < (g + 1) * size; first += kTunedLanes) {
        const auto count = static_cast<int>(std::min<std::int64_t>(kTunedLanes, (g + 1) * size - first));
        for (int i = 0; i < count; ++i) {
          const TunedTerms terms =
              step_offset(rounding, group.scale, w[first + i], gradient[first + i], args.rate, offsets[first + i]);
          by_scale[i] += terms.scale;
          by_zero[i] += terms.zero_point;
        }
      }
      if (of.grid.continuous())
        step_factors(of.grid, group, {sum_of(by_scale), sum_of(by_zero)}, args.rate, factors + 2 * g);
    }
  });
}

QUENCH_CPU_KERNEL(tuned_values_slot, tuned_values_cpu);
QUENCH_CPU_KERNEL(tuned_step_slot, tuned_step_cpu);

}  // namespace
}  // namespace quench::cpu
