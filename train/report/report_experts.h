#pragma once
// How tokens spread over the experts of each layer, as a heat map. HTML, empty for models without experts.

#include <string>

#include "train/report/run_data.h"

namespace quench {

[[nodiscard]] std::string render_experts(const RunData& run);

}  // namespace quench
