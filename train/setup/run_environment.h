#pragma once
// What a run ran on: recorded in the run folder and printed at the start.

#include "core/device/device.h"
#include "core/json/json.h"

namespace quench {

// Version of the program and its libraries, host, processor, threads, device and its memory.
[[nodiscard]] Json run_environment(Device device);

}  // namespace quench
