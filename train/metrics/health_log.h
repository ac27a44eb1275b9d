#pragma once
// The health of a low-precision run: when it is measured, where it goes, and when it is worth a warning.

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "recipes/health.h"
#include "train/metrics/metrics_log.h"

namespace quench {

enum class HealthFault {
  nonfinite,   // NaN or infinite values
  saturation,  // values clipped to the format's largest
  underflow,   // values that become 0
  noise,       // a poor signal to noise ratio
};

// Dynamic scaling maps the largest element of a scale's group to the format's largest value: none is clipped. More than
// this share is a fault: the scale belongs to other values.
inline constexpr double kMaxSaturatedShare = 1e-3;

// When the standard deviation of the bulk of an operand has sunk to the smallest normal number of e4m3, 2^-6, half the
// smallest subnormal, 2^-10, is 1/16 of it: 5% of normally distributed values are below and become 0 (10% in e5m2).
// From there on the bulk loses bits, which its SQNR does not show while a few large elements dominate the signal.
inline constexpr double kMaxUnderflowShare = 0.05;

// An operand that is this many decibels below dense_sqnr() has lost one bit of its significands in the mean, more than
// any distribution of normal numbers but a lattice of ties explains (they are within 3.3): subnormals carry the signal.
inline constexpr double kMaxSqnrLoss = 6.02;

struct HealthFinding {
  HealthFault fault;
  const recipes::OperandHealth* operand;
};

// All faults of a step: non-finite operands first, in order of measurement, then the others by layer.
[[nodiscard]] std::vector<HealthFinding> find_faults(std::span<const recipes::OperandHealth> operands);
// One line that names the layer, its operand, what is wrong and what to do.
[[nodiscard]] std::string describe(const HealthFinding& finding);

class HealthLog {
 public:
  // Without a recorder, and with `every` 0, nothing is measured. Else steps 1, every, 2 every, ... are.
  HealthLog(std::shared_ptr<recipes::HealthRecorder> recorder, std::int64_t every)
      : recorder_(every > 0 ? std::move(recorder) : nullptr), every_(every) {}

  // Before the forward pass of a step, counted from 1.
  void begin_step(std::int64_t step);
  // After its backward pass: what was measured goes to the log, and new faults to the screen.
  void end_step(std::int64_t step, MetricsLog& log);
  // After end_step(), of a step whose loss or gradient is not finite: "input of model.layers.3.mlp.down_proj", the
  // operand that was the first not to be finite. A step that was not measured is repeated by `again` for that. Empty
  // when no measured operand is at fault.
  [[nodiscard]] std::string first_nonfinite(std::int64_t step, MetricsLog& log, const std::function<void()>& again);

 private:
  void warn(std::int64_t step, std::span<const recipes::OperandHealth> operands);

  std::shared_ptr<recipes::HealthRecorder> recorder_;
  std::int64_t every_ = 0;
  std::vector<recipes::OperandHealth> measured_;  // of this step
  // Each fault of an operand is reported once a run.
  std::set<std::tuple<std::string, recipes::LayerOperand, HealthFault>> reported_;
};

}  // namespace quench
