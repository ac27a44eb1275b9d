#pragma once
// The op table of the step that metrics.profile_step names.

#include <chrono>
#include <functional>
#include <string_view>

#include "core/device/device.h"
#include "train/config/run_config.h"

namespace quench {

// Lives for one step. Where that is the step to profile, its end waits for the device, hands the table to `print` and
// writes it to profile.txt in the run's folder; else it does nothing.
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
