#pragma once

#include <string>
#include <vector>

#include "nn/causal_lm.h"
#include "nn/optim/optimizer.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/checkpoint_state.h"

namespace quench {

// Parameters ("model.layers.0...."), then moments and master weights ("optimizer.exp_avg....").
[[nodiscard]] std::vector<CheckpointTensor> training_tensors(nn::CausalLm& model, nn::Optimizer& optimizer);

// Overwrites all tensors. Other dtypes are widened exactly or rounded to nearest even. f32 parameters take stored
// master weights; new master weights take stored parameters. Throws not_found or invalid_argument naming the tensor for
// another model or optimizer, corrupt for damaged data.
void restore_training_tensors(CheckpointReader& reader, nn::CausalLm& model, nn::Optimizer& optimizer);

// Parameters alone, as restore_training_tensors().
void restore_parameters(CheckpointReader& reader, nn::CausalLm& model);

}  // namespace quench
