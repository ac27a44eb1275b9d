// Once per step and weight.

#include <cmath>

#include "core/ops/quantize/scale_gradient.h"

namespace quench::cpu {
namespace {

template <class T, class G>
void sum_groups(const ScaleGradientArgs& args) {
  const std::int64_t groups = args.scales.numel(), elements = args.w.numel() / groups;
  const T* w = args.w.data<T>();
  const G* dvalue = args.dvalue.data<G>();
  const auto* scales = args.scales.data<float>();
  auto* out = args.out.data<float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t g = 0; g < groups; ++g) {
    const float inverse = 1.0f / scales[g];
    float sum = 0.0f;
    for (std::int64_t i = g * elements; i < (g + 1) * elements; ++i) {
      sum += float(dvalue[i]) * scale_slope(float(w[i]) * inverse, args.options.bits, args.options.mapping,
                                            [](float x) { return std::nearbyint(x); });
    }
    out[g] = sum * args.factor;
  }
}

void scale_gradient_cpu(const ScaleGradientArgs& args) {
  dispatch<float, bfloat16>(args.w.dtype(), "scale_gradient", [&]<class T>() {
    dispatch<float, bfloat16>(args.dvalue.dtype(), "scale_gradient", [&]<class G>() { sum_groups<T, G>(args); });
  });
}

QUENCH_CPU_KERNEL(scale_gradient_slot, scale_gradient_cpu);

}  // namespace
}  // namespace quench::cpu
