#pragma once
// Wall-clock timer of the training loop: rates and fractions since the last record, ETA.
//
//   StepTimer timer(steps_done, total_steps);
//   loop: timer.begin_step(); fetch the batch; timer.batch_ready(); forward, backward, update;
//         timer.end_step(tokens of all ranks, model FLOPs of one device);
//         to log: timer.fill(metrics, peak FLOP/s);   // resets the window
// Time between end_step and begin_step (checkpoints, evaluation) enters the ETA only.

#include <chrono>
#include <cstdint>
#include <optional>

#include "train/metrics/step_metrics.h"

namespace quench {

class StepTimer {
 public:
  using Clock = std::chrono::steady_clock;

  // Earlier processes' steps do not enter rates.
  StepTimer(std::int64_t steps_done, std::int64_t total_steps, Clock::time_point now = Clock::now());

  void begin_step(Clock::time_point now = Clock::now());
  void batch_ready(Clock::time_point now = Clock::now());
  void end_step(std::int64_t tokens, double flops, Clock::time_point now = Clock::now());

  // Sets step, total_steps, tokens_per_second, tflops (nullopt without FLOPs), mfu (nullopt without a peak),
  // step_seconds, data_share and eta_seconds over the steps since the last call; resets the window. Rates are 0 before
  // the first step.
  void fill(StepMetrics& metrics, std::optional<double> peak_flops = std::nullopt);

  // Mean wall time of this process's steps, without the first (warm-up) once there is a second; nullopt before it, and
  // for an unknown total.
  [[nodiscard]] std::optional<double> eta_seconds() const;
  [[nodiscard]] std::int64_t steps_done() const noexcept { return steps_done_; }
  // 0 before the first step.
  [[nodiscard]] double last_tokens_per_second() const noexcept { return last_tokens_per_second_; }

 private:
  using Seconds = std::chrono::duration<double>;
  struct Window {
    std::int64_t steps = 0;
    std::int64_t tokens = 0;
    double flops = 0;
    double seconds = 0;
    double data_seconds = 0;
  };

  std::int64_t steps_done_;
  std::int64_t total_steps_;
  Clock::time_point start_;  // begin of the ETA average
  Clock::time_point last_end_;
  std::int64_t averaged_steps_ = 0;
  bool first_step_ended_ = false;
  double first_step_seconds_ = 0;
  double last_tokens_per_second_ = 0;
  Clock::time_point step_begin_;
  Clock::time_point batch_ready_;
  Window window_;
};

}  // namespace quench
