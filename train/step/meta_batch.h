#pragma once
// Meta device helpers: allocation accounting without computation.

#include "core/device/device.h"
#include "data/sampling/loader.h"

namespace quench {

inline constexpr Device kMeta{DeviceType::meta, 0};

// Batch of rows with one sequence each on the meta device; values are undefined.
[[nodiscard]] Batch meta_batch(std::int64_t rows, std::int64_t length);

}  // namespace quench
