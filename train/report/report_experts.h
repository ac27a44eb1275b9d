#pragma once
// Heat map of expert load per layer. Empty for dense models.

#include <string>

#include "train/report/run_data.h"

namespace quench {

[[nodiscard]] std::string render_experts(const RunData& run);

}  // namespace quench
