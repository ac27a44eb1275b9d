#pragma once
// Decides what happens to an optimizer step whose loss or gradient norm is not finite, and notices spikes.
//
// Ask before the optimizer runs, with values reduced over all ranks: the answer depends on nothing else, so every rank
// takes the same decision at the same step.
//
// A step without any target has nothing to learn from and is skipped too.
//
// Skipped step: weights and optimizer state stay as they are; the step counter, the learning-rate schedule and the
// data position move on as if it had been applied.
// Rollback: the trainer loads the last checkpoint and goes on from there. That cures passing faults only, so a second
// non-finite value before the run got past the failed step stops it.
// Spike: a finite value more than `spike_zscore` standard deviations above the mean of the last `window` finite ones.
// It is reported, never acted on. Non-finite values do not enter the windows, and a spike enters as the value at the
// limit: it cannot hide the next one, and the window still follows a lasting change of level.

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
  skip,      // drop this step's gradients and go on
  rollback,  // reload the last checkpoint
  stop,      // end the run with Error(nonfinite); the weights are still clean
};

struct LossGuardOptions {
  NonfinitePolicy on_nonfinite = NonfinitePolicy::stop;
  std::int64_t max_consecutive_skips = 10;  // one more in a row stops the run
  std::size_t window = 128;                 // finite values that a spike is measured against
  std::size_t min_samples = 20;             // no z-score before this many
  double spike_zscore = 6.0;
};

struct StepVerdict {
  StepAction action = StepAction::apply;
  bool nonfinite = false;
  bool spike = false;
  // Against the values before this step; empty for a non-finite value or a window with too few.
  std::optional<double> loss_zscore;
  std::optional<double> grad_norm_zscore;
  std::string message;  // one line for the log; empty when there is nothing to report
};

class LossGuard {
 public:
  // Throws Error(bad_config) for a negative limit, an empty window, or a z-score that is not positive.
  explicit LossGuard(const LossGuardOptions& options);

  // The verdict on step `step`. `first_bad` names the first tensor found to be non-finite, where the caller knows it;
  // it is only quoted.
  [[nodiscard]] StepVerdict check(std::int64_t step, double loss, double grad_norm, std::string_view first_bad = {});

  // The verdict on step `step`, of which no token is a target: skipped and counted, whatever the policy. Neither its
  // loss nor its norm says anything, so that the windows and the skips in a row stay as they are. The first one has a
  // message.
  [[nodiscard]] StepVerdict skip_without_targets(std::int64_t step);

  [[nodiscard]] std::int64_t consecutive_skips() const noexcept { return consecutive_skips_; }
  [[nodiscard]] std::int64_t skipped_steps() const noexcept { return skipped_steps_; }

  // Windows and counters, for the checkpoint; a restored guard gives the verdicts of the saved one bit for bit. The
  // memory of a rollback in progress is not part of it, so that loading the checkpoint does not erase it.
  [[nodiscard]] Json state() const;
  // Throws Error(corrupt) for anything that state() does not write.
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
  bool told_of_targets_ = false;             // that there are steps without any
  std::optional<std::int64_t> failed_step_;  // rolled back from, and not passed since
};

[[nodiscard]] std::string_view to_string(NonfinitePolicy policy) noexcept;
[[nodiscard]] std::string_view to_string(StepAction action) noexcept;

}  // namespace quench
