#include "train/metrics/health_metrics.h"

#include <algorithm>
#include <limits>

namespace quench {

double HealthMetrics::worst_sqnr() const noexcept {
  double worst = std::numeric_limits<double>::infinity();
  for (const recipes::OperandHealth& operand : operands) {
    if (!operand.finite()) return std::numeric_limits<double>::quiet_NaN();
    worst = std::min(worst, operand.error.sqnr());
  }
  return worst;
}

double HealthMetrics::most_saturated() const noexcept {
  double most = 0;
  for (const recipes::OperandHealth& operand : operands) most = std::max(most, operand.saturated_share());
  return most;
}

double HealthMetrics::most_underflow() const noexcept {
  double most = 0;
  for (const recipes::OperandHealth& operand : operands) most = std::max(most, operand.underflow_share());
  return most;
}

}  // namespace quench
