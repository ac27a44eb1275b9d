#pragma once
// Policy for steps with non-finite loss or gradient norm, and spike detection.
//
// Called before the optimizer with values reduced over all ranks; the verdict depends on nothing else: all ranks agree.
//
// Skip: weights and optimizer state are unchanged; step counter, learning-rate schedule and data position advance. Also
// for a step without targets.
// Rollback: the trainer reloads the last checkpoint. A second non-finite value before the failed step is passed stops
// the run: rollback only helps with transient faults.
// Spike: a finite value more than `spike_zscore` standard deviations above the mean of the last `window` finite ones;
// reported only. It enters the window clamped to the limit: it does not mask the next one, and the window follows a
// lasting change of level.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench {

enum class NonfinitePolicy { stop, skip, rollback };

enum class StepAction {
  apply,     // run the optimizer
  skip,      // drop this step's gradients
  rollback,  // reload the last checkpoint
  stop,      // throw nonfinite; weights are finite
};

struct LossGuardOptions {
  NonfinitePolicy on_nonfinite = NonfinitePolicy::stop;
  std::int64_t max_consecutive_skips = 10;  // one more stops the run
  std::size_t window = 128;                 // finite values of the statistics
  std::size_t min_samples = 20;             // for a z-score
  double spike_zscore = 6.0;
  bool updates_in_backward = false;  // a step that is not finite may be applied in part
};

struct StepVerdict {
  StepAction action = StepAction::apply;
  bool nonfinite = false;
  bool spike = false;
  // Against earlier values; nullopt for a non-finite value or too few samples.
  std::optional<double> loss_zscore;
  std::optional<double> grad_norm_zscore;
  std::string message;  // one line; may be empty
};

class LossGuard {
 public:
  // Throws bad_config for a negative limit, a z-score that is not positive, or unless 2 <= min_samples <= window.
  explicit LossGuard(const LossGuardOptions& options);

  // `first_bad`: first non-finite tensor, if known; for the message.
  [[nodiscard]] StepVerdict check(std::int64_t step, double loss, double grad_norm, std::string_view first_bad = {});

  // Without targets: skipped and counted under any policy; windows and consecutive skips are unchanged. A message on
  // the first.
  [[nodiscard]] StepVerdict skip_without_targets(std::int64_t step);

  [[nodiscard]] std::int64_t consecutive_skips() const noexcept { return consecutive_skips_; }
  [[nodiscard]] std::int64_t skipped_steps() const noexcept { return skipped_steps_; }

  // Windows and counters; a restored guard is bit-identical. Excludes a rollback in progress, which loading the
  // checkpoint must not erase.
  [[nodiscard]] Json state() const;
  // Throws corrupt for content not written by state().
  void restore(const Json& state);

 private:
  [[nodiscard]] std::optional<double> zscore(const std::deque<double>& window, double value) const;
  std::optional<double> observe(std::deque<double>& window, double value) const;
  void decide(std::int64_t step, StepVerdict& verdict);

  LossGuardOptions options_;
  std::deque<double> losses_;  // oldest first
  std::deque<double> grad_norms_;
  std::int64_t consecutive_skips_ = 0;
  std::int64_t skipped_steps_ = 0;
  bool told_of_targets_ = false;             // message given
  std::optional<std::int64_t> failed_step_;  // rolled back and not yet passed
};

}  // namespace quench
