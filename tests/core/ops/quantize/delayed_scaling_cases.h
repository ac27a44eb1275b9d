#pragma once
// Operands of update_delayed_scales() on both devices: histories of every fill, and amax of every kind.

#include <cmath>
#include <limits>
#include <vector>

#include "core/ops/quantize/delayed_scaling.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {

// On the CPU.
inline DelayedScalingArgs delayed_scaling_case(Generator& random, std::int64_t operands, std::int64_t steps,
                                               int margin) {
  DelayedScalingArgs args{.recorded = Tensor::zeros({operands}, DType::f32),
                          .history = Tensor::zeros({operands, steps}, DType::f32),
                          .largest = Tensor::empty({operands}, DType::f32),
                          .scale = Tensor::zeros({operands}, DType::f32),
                          .margin = margin};
  const auto amax = [&] {
    return std::ldexp(1.0f + 0.1f * static_cast<float>(random.below(10)), static_cast<int>(random.between(-45, 40)));
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t i = 0; i < operands; ++i) {
    const float kinds[] = {amax(), amax(), amax(), 0.0f, kInfinity, kNan};
    args.recorded.data<float>()[i] = kinds[random.below(6)];
    args.largest.data<float>()[i] = random.coin() ? 448.0f : 57344.0f;
    for (std::int64_t filled = random.below(steps + 1), h = 0; h < filled; ++h)
      args.history.data<float>()[i * steps + h] = amax();
  }
  return args;
}

}  // namespace quench::testing
