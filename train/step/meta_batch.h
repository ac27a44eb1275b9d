#pragma once
// Batches without data, for runs on the meta device.

#include "core/device/device.h"
#include "data/sampling/loader.h"

namespace quench {

inline constexpr Device kMeta{DeviceType::meta, 0};

// On the meta device, one sequence per row; values are undefined.
[[nodiscard]] Batch meta_batch(std::int64_t rows, std::int64_t length);

}  // namespace quench
