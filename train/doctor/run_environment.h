#pragma once
// Environment of a run as JSON.

#include "core/device/device.h"
#include "core/json/json.h"

namespace quench {

// Versions, host, processor, threads, device and its memory: for the run folder and the start report.
[[nodiscard]] Json run_environment(Device device);

}  // namespace quench
