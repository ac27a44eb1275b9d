#pragma once
// Expert load per layer as a heat map. HTML, empty for dense models.

#include <string>

#include "train/report/run_data.h"

namespace quench {

[[nodiscard]] std::string render_experts(const RunData& run);

}  // namespace quench
