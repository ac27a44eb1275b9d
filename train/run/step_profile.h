#pragma once
// Op table of the step metrics.profile_step.

#include <chrono>
#include <functional>
#include <string_view>

#include "core/device/device.h"
#include "train/config/run_config.h"

namespace quench {

// Scope of a step. In step metrics.profile_step: synchronizes the device, passes the op table to `print` and writes
// profile.txt to the run folder. Else a no-op.
class StepProfile {
 public:
  StepProfile(const RunConfig& config, Device device, std::int64_t step, std::function<void(std::string_view)> print);
  ~StepProfile();
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

 private:
  const RunConfig& config_;
  Device device_;
  std::int64_t step_;
  std::function<void(std::string_view)> print_;
  bool on_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace quench
