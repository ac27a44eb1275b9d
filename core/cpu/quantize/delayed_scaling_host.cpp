#include <algorithm>
#include <cmath>

#include "core/number/float8.h"
#include "core/ops/quantize/delayed_scaling.h"

namespace quench {
namespace {

void delayed_scaling_host(const DelayedScalingArgs& args) {
  const std::int64_t steps = args.history.size(1);
  auto* recorded = args.recorded.data<float>();
  const auto* largest = args.largest.data<float>();
  auto* scale = args.scale.data<float>();
  for (std::int64_t i = 0; i < args.recorded.numel(); ++i) {
    float* history = args.history.data<float>() + i * steps;
    if (recorded[i] > 0 && std::isfinite(recorded[i])) {
      std::copy_backward(history, history + steps - 1, history + steps);
      history[0] = recorded[i];
    }
    recorded[i] = 0;
    const float amax = *std::max_element(history, history + steps);
    scale[i] = amax > 0 ? std::ldexp(float8_scale(amax, largest[i], false), -args.margin) : 1.0f;
  }
}

QUENCH_CPU_KERNEL(delayed_scaling_slot, delayed_scaling_host);

}  // namespace
}  // namespace quench
