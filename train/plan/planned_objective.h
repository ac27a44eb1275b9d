#pragma once
// Batches and second models of a planned run, on the meta device.

#include "data/sampling/loader.h"
#include "distributed/ranks.h"
#include "train/config/run_config.h"

namespace quench {

// Bytes of the folder's model in preference.reference, which computes log-probabilities before the first step; 0
// without one.
[[nodiscard]] std::int64_t reference_weight_bytes(const RunConfig& config, const distributed::Ranks* ranks);

// meta_batch(); with preferences, each row is a pair of equally long answers.
[[nodiscard]] Batch planned_batch(const RunConfig& config);

}  // namespace quench
