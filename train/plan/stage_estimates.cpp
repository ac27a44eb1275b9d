#include "train/plan/stage_estimates.h"

#include <algorithm>

namespace quench {

RunEstimate of_stages(std::vector<RunEstimate> stages) {
  const auto worst = std::ranges::max_element(stages, {}, &RunEstimate::total_bytes);
  RunEstimate all = *worst;
  all.stage = static_cast<int>(worst - stages.begin());
  for (auto stage = stages.begin(); stage != stages.end(); ++stage) {
    if (stage == worst) continue;
    all.checkpoint_bytes += stage->checkpoint_bytes;
    all.checkpoint_state_bytes += stage->checkpoint_state_bytes;
    if (all.time && stage->time && stage->time->total() > all.time->total()) all.time = stage->time;
  }
  return all;
}

}  // namespace quench
