#pragma once
// Search of a run config for GPUs: of all choices of the axes (plan_axis.h), that of the least predicted time a token
// whose memory, planned on the meta device, fits.
//
// For each combination of choices the largest micro-batch that fits is found by bisection: memory grows with it, and
// the time a token does not. Along ladders memory falls and time (but for detours) does not, so that combinations are
// left out that cannot win: those beyond choices that fit with the largest micro-batch, or that take longer with it
// than the best run; and all of a ladder whose end does not fit. Predictions: estimate.h, step_time.h; of times within
// 0.5% the first found wins, which has fewer keys.

#include <cstdint>
#include <string>
#include <vector>

#include "train/plan/estimate.h"
#include "train/plan/search/plan_request.h"

namespace quench {

// A combination of choices with a micro-batch.
struct PlannedRun {
  std::vector<std::string> choices;  // labels, by axis
  std::int64_t micro_batch = 0;      // sequences
  std::int64_t sequences = 0;        // a process has in a step
  Json document;                     // run config
  RunEstimate estimate;
  std::int64_t over_bytes = 0;  // needed beyond the GPU's memory, or else the host's; 0: fits

  [[nodiscard]] double tokens_per_second() const;  // all GPUs together
};

// The best run with another choice on one axis, or another micro-batch.
struct PlanAlternative {
  std::string axis, choice;
  std::vector<std::string> changed = {};  // other differences: "micro-batch 2"
  std::string loses;                      // "12% slower: GEMMs", "9.4 GiB over", "is refused: ..."
};

struct Plan {
  std::vector<std::string> axes;
  PlannedRun best;
  std::vector<PlanAlternative> alternatives;
  std::int64_t estimates = 0;  // runs planned on the meta device
};

// Throws bad_config for a request that no choice can meet, out_of_memory if nothing fits: with the least memory that
// was found, and the fewest GPUs, the smallest GPU and the objectives that would fit.
[[nodiscard]] Plan search_plan(const PlanRequest& request);

}  // namespace quench
