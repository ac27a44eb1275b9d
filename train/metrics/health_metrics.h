#pragma once
// Quantization errors of operands in one step, by layer.

#include <cstdint>
#include <vector>

#include "recipes/health.h"

namespace quench {

struct HealthMetrics {
  std::int64_t step = 0;
  std::vector<recipes::OperandHealth> operands;  // by layer
  double unix_time = 0;                          // see StepMetrics

  // Infinite if lossless, NaN for a non-finite operand.
  [[nodiscard]] double worst_sqnr() const noexcept;
  [[nodiscard]] double most_saturated() const noexcept;
  [[nodiscard]] double most_underflow() const noexcept;
};

}  // namespace quench
