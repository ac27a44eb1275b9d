#pragma once
// Estimate of a run from those of its pipeline stages.

#include <vector>

#include "train/plan/estimate.h"

namespace quench {

// The estimate of the stage that needs most memory, with the time of the slowest one and the checkpoint of all. At
// least one stage.
[[nodiscard]] RunEstimate of_stages(std::vector<RunEstimate> stages);

}  // namespace quench
