#pragma once
// The one judgement of `quench train` and `quench config check` on a config that load_run_config has accepted.

#include <optional>

#include "core/device/device.h"
#include "train/config/run_config.h"

namespace quench {

// Throws what speaks against starting the run, before anything of it is read, written or allocated: a recipe, filter or
// export that does not fit the model (bad_config, or unsupported by the device or the format) and, where a device is
// given, what it cannot do (bad_config) and a run that does not fit its memory (out_of_memory). An impossible size is
// refused without a plan.
void require_startable(const RunConfig& config, const std::optional<Device>& device);

}  // namespace quench
