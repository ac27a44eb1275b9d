#pragma once
// Work of a rank in a step, from a run's config, its model on the meta device and what an estimate has counted.

#include <cstdint>
#include <span>

#include "train/checkpoint/snapshot.h"
#include "train/plan/estimate.h"
#include "train/session/model_setup.h"

namespace quench {

// Tokens of a micro-batch on one rank.
[[nodiscard]] std::int64_t micro_batch_tokens(const RunConfig& config);

// For predict_step(). `state`: tensors of a checkpoint; `counted`: FLOPs, mesh and bytes that travel.
[[nodiscard]] StepWork step_work(const RunConfig& config, const ModelSetup& setup,
                                 std::span<const CheckpointTensor> state, std::int64_t micro_batches,
                                 const RunEstimate& counted);

}  // namespace quench
