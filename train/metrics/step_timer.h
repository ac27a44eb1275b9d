#pragma once
// Wall-clock bookkeeping of the training loop: rates and shares over the steps since the last record, and the time
// left.
//
//   StepTimer timer(steps_done, total_steps);
//   loop: timer.begin_step(); fetch the batch; timer.batch_ready(); forward, backward, update;
//         timer.end_step(tokens of all ranks, model FLOPs of one device);
//         to log: timer.fill(metrics, peak FLOP/s);   // and begins a new window
// Time between end_step and begin_step (checkpoints, evaluation) belongs to no step; the ETA includes its average.

#include <chrono>
#include <cstdint>
#include <optional>

#include "train/metrics/step_metrics.h"

namespace quench {

class StepTimer {
 public:
  using Clock = std::chrono::steady_clock;

  // Steps done before this process began count for no rate.
  StepTimer(std::int64_t steps_done, std::int64_t total_steps, Clock::time_point now = Clock::now());

  void begin_step(Clock::time_point now = Clock::now());
  void batch_ready(Clock::time_point now = Clock::now());
  void end_step(std::int64_t tokens, double flops, Clock::time_point now = Clock::now());

  // Sets step, total_steps, tokens_per_second, tflops (nullopt when no FLOPs were counted), mfu (nullopt without a
  // peak), step_seconds, data_share and eta_seconds from the steps since the last call, and starts anew. Before any
  // step has ended, rates are 0.
  void fill(StepMetrics& metrics, std::optional<double> peak_flops = std::nullopt);

  // From the wall time of this process's steps so far; nullopt before the first. The first step's warm-up (memory,
  // caches, kernel selection) is left out as soon as there is a second.
  [[nodiscard]] std::optional<double> eta_seconds() const;
  [[nodiscard]] std::int64_t steps_done() const noexcept { return steps_done_; }
  // Of the newest step; 0 before any.
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
  Clock::time_point start_;  // of the steps that the ETA averages
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
