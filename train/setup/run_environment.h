#pragma once
// Environment of a run, recorded in the run folder and printed at the start.

#include "core/device/device.h"
#include "core/json/json.h"

namespace quench {

// Versions of program and libraries, host, processor, threads, device and its memory.
[[nodiscard]] Json run_environment(Device device);

}  // namespace quench
