#pragma once
// What one step's operands lost to quantization, for the sinks of metrics.

#include <cstdint>
#include <vector>

#include "recipes/health.h"

namespace quench {

struct HealthMetrics {
  std::int64_t step = 0;
  std::vector<recipes::OperandHealth> operands;  // by layer
  double unix_time = 0;                          // as in StepMetrics

  // Over all operands. The worst ratio is infinite where nothing is lost, and NaN where an operand is not finite.
  [[nodiscard]] double worst_sqnr() const noexcept;
  [[nodiscard]] double most_saturated() const noexcept;
  [[nodiscard]] double most_underflow() const noexcept;
};

}  // namespace quench
