#pragma once
// Checks of multi-token prediction (MTP) in a run's config.

#include "nn/spec/model_config.h"
#include "train/check/checker.h"

namespace quench {

// training.mtp_loss_weight over the run's model.
void check_mtp(Checker& checker, const nn::ModelConfig& model);

// Layers of multi-token prediction in model.path's config.json; 0 without.
[[nodiscard]] std::int64_t stored_mtp_layers(const RunConfig& config);

}  // namespace quench
