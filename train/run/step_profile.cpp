#include "train/run/step_profile.h"

#include "core/device/op_profile.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "train/metrics/run_files.h"

namespace quench {

StepProfile::StepProfile(const RunConfig& config, Device device, std::int64_t step,
                         std::function<void(std::string_view)> print)
    : config_(config),
      device_(device),
      step_(step),
      print_(std::move(print)),
      on_(config.metrics.profile_step == step) {
  if (!on_) return;
  backend(device.type).synchronize(current_stream(device));
  start_ = std::chrono::steady_clock::now();
  OpProfile::start(device);
}

StepProfile::~StepProfile() {
  if (!on_) return;
  try {
    const std::vector<OpTime> times = OpProfile::stop();
    const auto wall = std::chrono::steady_clock::now() - start_;
    const std::string table =
        fmt::format("step {}\n", step_) + profile_table(times, std::chrono::duration<double, std::milli>(wall).count());
    print_(table);
    write_file_atomically(std::filesystem::path(config_.run.folder) / run_files::kProfile, table);
  } catch (const std::exception& error) {
    QUENCH_LOG_WARN("the profile of step {} is lost: {}", step_, error.what());
  }
}

}  // namespace quench
