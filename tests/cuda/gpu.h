#pragma once
// Device of the GPU tests.

#include "core/device/device.h"

namespace quench::testing {

// The GPU that tests use.
inline constexpr Device kGpu{DeviceType::cuda, 0};

}  // namespace quench::testing
