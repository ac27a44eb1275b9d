#pragma once
// The planning device: runs there allocate what they would allocate, and compute nothing.

#include "core/device/device.h"
#include "data/sampling/loader.h"

namespace quench {

inline constexpr Device kPlanning{DeviceType::meta, 0};

// A batch of rows of one sequence each on the planning device; its values are never read.
[[nodiscard]] Batch planning_batch(std::int64_t rows, std::int64_t length);

}  // namespace quench
