#pragma once
// Quantization health: measurement schedule, logging, warnings.

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
  saturation,  // clipped to the format's maximum
  underflow,   // rounded to 0
  noise,       // low SQNR
};

// Saturated fraction. Dynamic scaling clips nothing; more indicates a stale or wrong scale.
inline constexpr double kMaxSaturatedShare = 1e-3;

// Underflow fraction. With the standard deviation of the bulk at e4m3's smallest normal, 2^-6, half the smallest
// subnormal, 2^-10, is 1/16 of it: 5% of normally distributed values round to 0 (10% in e5m2). Beyond that the bulk
// loses bits that SQNR hides when outliers dominate.
inline constexpr double kMaxUnderflowShare = 0.05;

// SQNR below dense_sqnr(), dB: one significand bit on average. Distributions of normal numbers other than a lattice of
// ties stay within 3.3; more means subnormals.
inline constexpr double kMaxSqnrLoss = 6.02;

struct HealthFinding {
  HealthFault fault;
  const recipes::OperandHealth* operand;
};

// Non-finite operands first, in order of measurement, then others by layer.
[[nodiscard]] std::vector<HealthFinding> find_faults(std::span<const recipes::OperandHealth> operands);
// Layer, operand, fault, remedy.
[[nodiscard]] std::string describe(const HealthFinding& finding);

class HealthLog {
 public:
  // None without a recorder or with `every` 0; else at steps 1, every, 2 every, ...
  HealthLog(std::shared_ptr<recipes::HealthRecorder> recorder, std::int64_t every)
      : recorder_(every > 0 ? std::move(recorder) : nullptr), every_(every) {}

  // Before the forward pass; steps are 1-based.
  void begin_step(std::int64_t step);
  // After the backward pass: logs measurements, warns of new faults.
  void end_step(std::int64_t step, MetricsLog& log);
  // After end_step() of a non-finite step: first non-finite operand, e.g. "input of model.layers.3.mlp.down_proj".
  // Repeats an unmeasured step with `again`. Empty if all measured operands are finite.
  [[nodiscard]] std::string first_nonfinite(std::int64_t step, MetricsLog& log, const std::function<void()>& again);

 private:
  void warn(std::int64_t step, std::span<const recipes::OperandHealth> operands);

  std::shared_ptr<recipes::HealthRecorder> recorder_;
  std::int64_t every_ = 0;
  std::vector<recipes::OperandHealth> measured_;  // current step
  // Once per operand and run.
  std::set<std::tuple<std::string, recipes::LayerOperand, HealthFault>> reported_;
};

}  // namespace quench
