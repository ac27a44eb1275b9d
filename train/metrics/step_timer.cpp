#include "train/metrics/step_timer.h"

#include <algorithm>

namespace quench {

StepTimer::StepTimer(std::int64_t steps_done, std::int64_t total_steps, Clock::time_point now)
    : steps_done_(steps_done),
      total_steps_(total_steps),
      start_(now),
      last_end_(now),
      step_begin_(now),
      batch_ready_(now) {}

void StepTimer::begin_step(Clock::time_point now) {
  step_begin_ = now;
  batch_ready_ = now;
}

void StepTimer::batch_ready(Clock::time_point now) {
  batch_ready_ = now;
}

void StepTimer::end_step(std::int64_t tokens, double flops, Clock::time_point now) {
  const double seconds = Seconds(now - step_begin_).count();
  last_tokens_per_second_ = seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  ++steps_done_;
  ++window_.steps;
  window_.tokens += tokens;
  window_.flops += flops;
  window_.seconds += seconds;
  window_.data_seconds += Seconds(batch_ready_ - step_begin_).count();
  last_end_ = now;
  if (first_step_ended_) {
    ++averaged_steps_;
  } else {
    first_step_ended_ = true;
    first_step_seconds_ = seconds;
    start_ = now;
  }
}

std::optional<double> StepTimer::eta_seconds() const {
  if (total_steps_ <= 0 || !first_step_ended_) return std::nullopt;
  const auto left = static_cast<double>(std::max<std::int64_t>(total_steps_ - steps_done_, 0));
  if (averaged_steps_ == 0) return left * first_step_seconds_;
  return left * Seconds(last_end_ - start_).count() / static_cast<double>(averaged_steps_);
}

void StepTimer::fill(StepMetrics& metrics, std::optional<double> peak_flops) {
  metrics.step = steps_done_;
  metrics.total_steps = total_steps_;
  metrics.eta_seconds = eta_seconds();
  metrics.tokens_per_second = 0;
  metrics.step_seconds = 0;
  metrics.data_share = 0;
  metrics.tflops.reset();
  metrics.mfu.reset();
  if (window_.steps > 0 && window_.seconds > 0) {
    metrics.tokens_per_second = static_cast<double>(window_.tokens) / window_.seconds;
    metrics.step_seconds = window_.seconds / static_cast<double>(window_.steps);
    metrics.data_share = window_.data_seconds / window_.seconds;
    if (window_.flops > 0) {
      const double flops_per_second = window_.flops / window_.seconds;
      metrics.tflops = flops_per_second * 1e-12;
      if (peak_flops && *peak_flops > 0) metrics.mfu = flops_per_second / *peak_flops;
    }
  }
  window_ = Window{};
}

}  // namespace quench
