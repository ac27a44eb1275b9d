#pragma once
// A step's health with round numbers.

#include "train/metrics/health_metrics.h"

namespace quench::testing {

inline HealthMetrics example_health() {
  using recipes::LayerOperand;
  HealthMetrics metrics{.step = 7, .operands = {}, .unix_time = 5};
  metrics.operands.push_back({.layer = "first",
                              .operand = LayerOperand::input,
                              .format = ElementFormat::e4m3,
                              .elements = 1000,
                              .order = 0,
                              .error = {.signal = 1000, .noise = 1, .saturated = 0, .underflows = 0, .most = 3.5}});
  metrics.operands.push_back({.layer = "first",
                              .operand = LayerOperand::output_gradient,
                              .format = ElementFormat::e5m2,
                              .elements = 1000,
                              .order = 2,
                              .error = {.signal = 100, .noise = 1, .saturated = 50, .underflows = 250, .most = 0.5}});
  metrics.operands.push_back({.layer = "second",
                              .operand = LayerOperand::weight,
                              .format = ElementFormat::e4m3,
                              .elements = 500,
                              .order = 1,
                              .error = {.signal = 8, .noise = 0, .saturated = 0, .underflows = 0, .most = 2}});
  return metrics;
}

}  // namespace quench::testing
