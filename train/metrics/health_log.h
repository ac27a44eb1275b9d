#pragma once
// Quantization health of a low-precision run: measurement schedule, logging and warnings.

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
  saturation,  // values clipped to the format's maximum
  underflow,   // values rounded to 0
  noise,       // low SQNR
};

// Maximum saturated fraction. Dynamic scaling maps the group amax to the format's maximum, so nothing is clipped; more
// indicates a stale or wrong scale.
inline constexpr double kMaxSaturatedShare = 1e-3;

// Maximum underflow fraction. If the standard deviation of an operand's bulk is the smallest normal of e4m3, 2^-6, half
// the smallest subnormal, 2^-10, is 1/16 of it: 5% of normally distributed values round to 0 (10% in e5m2). Beyond that
// the bulk loses bits that SQNR does not show while outliers dominate the signal.
inline constexpr double kMaxUnderflowShare = 0.05;

// Maximum SQNR below dense_sqnr(), in dB: one significand bit on average. Distributions of normal numbers other than a
// lattice of ties stay within 3.3; more means subnormals carry the signal.
inline constexpr double kMaxSqnrLoss = 6.02;

struct HealthFinding {
  HealthFault fault;
  const recipes::OperandHealth* operand;
};

// All faults of a step: non-finite operands first, in order of measurement, then the others by layer.
[[nodiscard]] std::vector<HealthFinding> find_faults(std::span<const recipes::OperandHealth> operands);
// One line: layer, operand, fault and remedy.
[[nodiscard]] std::string describe(const HealthFinding& finding);

class HealthLog {
 public:
  // No measurement without a recorder or with `every` 0; else at steps 1, every, 2 every, ...
  HealthLog(std::shared_ptr<recipes::HealthRecorder> recorder, std::int64_t every)
      : recorder_(every > 0 ? std::move(recorder) : nullptr), every_(every) {}

  // Call before the forward pass; steps are 1-based.
  void begin_step(std::int64_t step);
  // Call after the backward pass: logs measurements, and warns of new faults.
  void end_step(std::int64_t step, MetricsLog& log);
  // Call after end_step() for a step with non-finite loss or gradient: first non-finite operand, e.g. "input of
  // model.layers.3.mlp.down_proj". Repeats an unmeasured step with `again`. Empty if all measured operands are finite.
  [[nodiscard]] std::string first_nonfinite(std::int64_t step, MetricsLog& log, const std::function<void()>& again);

 private:
  void warn(std::int64_t step, std::span<const recipes::OperandHealth> operands);

  std::shared_ptr<recipes::HealthRecorder> recorder_;
  std::int64_t every_ = 0;
  std::vector<recipes::OperandHealth> measured_;  // current step
  // Faults are reported once per operand and run.
  std::set<std::tuple<std::string, recipes::LayerOperand, HealthFault>> reported_;
};

}  // namespace quench
