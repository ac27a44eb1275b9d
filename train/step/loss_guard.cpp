#include "train/step/loss_guard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/system/check.h"

namespace quench {
namespace {

// Floor of the standard deviation relative to the mean: near-constant values would make any change a spike.
constexpr double kRelativeDeviationFloor = 1e-3;

struct Moments {
  double mean = 0;
  double deviation = 0;
};

// Two passes per call: a running sum drifts and is not bit-identical after a restart.
Moments moments(const std::deque<double>& values) {
  const auto count = static_cast<double>(values.size());
  Moments result;
  for (const double value : values) result.mean += value;
  result.mean /= count;
  double variance = 0;
  for (const double value : values) variance += (value - result.mean) * (value - result.mean) / count;
  result.deviation = std::max(
      {std::sqrt(variance), kRelativeDeviationFloor * std::abs(result.mean), std::numeric_limits<double>::min()});
  return result;
}

Json to_array(const std::deque<double>& values) {
  Json result = Json::array();
  for (const double value : values) result.push_back(Json(value));
  return result;
}

std::deque<double> from_array(const Json& values, std::size_t limit) {
  std::deque<double> result;
  for (const Json& value : values.as_array()) {
    result.push_back(value.as_double());
    QUENCH_CHECK_AS(ErrorCode::corrupt, std::isfinite(result.back()), "the saved loss window holds a non-finite value");
  }
  while (result.size() > limit) result.pop_front();
  return result;
}

std::int64_t count_from(const Json& state, std::string_view key) {
  const std::int64_t count = state.at(key).as_int();
  QUENCH_CHECK_AS(ErrorCode::corrupt, count >= 0, "the saved loss guard has {} = {}", key, count);
  return count;
}

}  // namespace

LossGuard::LossGuard(const LossGuardOptions& options) : options_(options) {
  constexpr auto kBad = ErrorCode::bad_config;
  QUENCH_CHECK_AS(kBad, options.max_consecutive_skips >= 0, "max_consecutive_skips must not be negative, got {}",
                  options.max_consecutive_skips);
  QUENCH_CHECK_AS(kBad, options.window >= 2 && options.min_samples >= 2 && options.min_samples <= options.window,
                  "the spike window needs 2 <= min_samples <= window, got min_samples {} and window {}",
                  options.min_samples, options.window);
  QUENCH_CHECK_AS(kBad, std::isfinite(options.spike_zscore) && options.spike_zscore > 0,
                  "spike_zscore must be a positive number, got {}", options.spike_zscore);
}

std::optional<double> LossGuard::zscore(const std::deque<double>& window, double value) const {
  if (!std::isfinite(value) || window.size() < options_.min_samples) return std::nullopt;
  const Moments m = moments(window);
  return (value - m.mean) / m.deviation;
}

std::optional<double> LossGuard::observe(std::deque<double>& window, double value) const {
  const auto z = zscore(window, value);
  if (!std::isfinite(value)) return z;
  if (z && *z > options_.spike_zscore) {
    const Moments m = moments(window);
    value = m.mean + options_.spike_zscore * m.deviation;
  }
  window.push_back(value);
  if (window.size() > options_.window) window.pop_front();
  return z;
}

void LossGuard::decide(std::int64_t step, StepVerdict& verdict) {
  switch (options_.on_nonfinite) {
    case NonfinitePolicy::stop:
      verdict.action = StepAction::stop;
      verdict.message += options_.updates_in_backward
                             ? "; the run ends, and this step, parts of which may be applied, is not saved "
                               "(training.on_nonfinite is stop)"
                             : "; the update was not applied (training.on_nonfinite is stop)";
      return;
    case NonfinitePolicy::skip:
      if (consecutive_skips_ >= options_.max_consecutive_skips) {
        verdict.action = StepAction::stop;
        verdict.message += fmt::format("; stopping after {} skipped steps in a row (training.max_consecutive_skips)",
                                       consecutive_skips_);
        return;
      }
      ++consecutive_skips_;
      ++skipped_steps_;
      verdict.action = StepAction::skip;
      verdict.message += fmt::format("; step skipped ({} in a row, at most {}; {} in all)", consecutive_skips_,
                                     options_.max_consecutive_skips, skipped_steps_);
      return;
    case NonfinitePolicy::rollback:
      if (failed_step_) {
        verdict.action = StepAction::stop;
        verdict.message += fmt::format(
            "; stopping, since the run was already rolled back from step {} and failed there again", *failed_step_);
        return;
      }
      failed_step_ = step;
      verdict.action = StepAction::rollback;
      verdict.message += "; rolling back to the last checkpoint";
      return;
  }
}

StepVerdict LossGuard::check(std::int64_t step, double loss, double grad_norm, std::string_view first_bad) {
  StepVerdict verdict;
  verdict.nonfinite = !std::isfinite(loss) || !std::isfinite(grad_norm);
  if (verdict.nonfinite) {
    verdict.message = fmt::format("step {}: loss {}, gradient norm {}", step, loss, grad_norm);
    if (!first_bad.empty()) verdict.message += fmt::format("; first non-finite tensor: {}", first_bad);
    decide(step, verdict);
    return verdict;
  }
  consecutive_skips_ = 0;
  if (failed_step_ && step >= *failed_step_) failed_step_.reset();
  verdict.loss_zscore = observe(losses_, loss);
  verdict.grad_norm_zscore = observe(grad_norms_, grad_norm);
  const auto is_spike = [&](const std::optional<double>& z) { return z && *z > options_.spike_zscore; };
  verdict.spike = is_spike(verdict.loss_zscore) || is_spike(verdict.grad_norm_zscore);
  if (verdict.spike) {
    verdict.message =
        fmt::format("step {}: spike: loss {:.4f} ({:+.1f} standard deviations), gradient norm {:.4g} ({:+.1f})", step,
                    loss, *verdict.loss_zscore, grad_norm, *verdict.grad_norm_zscore);
  }
  return verdict;
}

StepVerdict LossGuard::skip_without_targets(std::int64_t step) {
  ++skipped_steps_;
  StepVerdict verdict{.action = StepAction::skip};
  if (!std::exchange(told_of_targets_, true))
    verdict.message = fmt::format(
        "step {}: no token is a target, as in parts of long prompts (data.on_long): the step is skipped, weights and "
        "optimizer state are unchanged; further ones are counted as skipped steps",
        step);
  return verdict;
}

Json LossGuard::state() const {
  Json result = Json::object();
  result.set("losses", to_array(losses_));
  result.set("grad_norms", to_array(grad_norms_));
  result.set("consecutive_skips", Json(consecutive_skips_));
  result.set("skipped_steps", Json(skipped_steps_));
  return result;
}

void LossGuard::restore(const Json& state) {
  auto losses = from_array(state.at("losses"), options_.window);
  auto grad_norms = from_array(state.at("grad_norms"), options_.window);
  QUENCH_CHECK_AS(ErrorCode::corrupt, losses.size() == grad_norms.size(),
                  "the saved loss guard has {} losses but {} gradient norms", losses.size(), grad_norms.size());
  const std::int64_t consecutive = count_from(state, "consecutive_skips"), skipped = count_from(state, "skipped_steps");
  losses_ = std::move(losses);
  grad_norms_ = std::move(grad_norms);
  consecutive_skips_ = consecutive;
  skipped_steps_ = skipped;
}

}  // namespace quench
