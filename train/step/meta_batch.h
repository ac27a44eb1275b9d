#pragma once
// The meta device: runs there allocate what they would allocate, and compute nothing.

#include "core/device/device.h"
#include "data/sampling/loader.h"

namespace quench {

inline constexpr Device kMeta{DeviceType::meta, 0};

// A batch of rows of one sequence each on the meta device; its values are never read.
[[nodiscard]] Batch meta_batch(std::int64_t rows, std::int64_t length);

}  // namespace quench
