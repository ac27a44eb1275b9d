#pragma once
// The tensors of a training run as checkpoints store them.

#include <string>
#include <vector>

#include "nn/causal_lm.h"
#include "nn/optim/optimizer.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/checkpoint_state.h"

namespace quench {

// Parameters under their names ("model.layers.0...."), then moments and master weights ("optimizer.exp_avg....").
[[nodiscard]] std::vector<CheckpointTensor> training_tensors(nn::CausalLm& model, nn::Optimizer& optimizer);

// Overwrites all of them. What is stored in another dtype is converted: widened exactly, or rounded to nearest even.
// f32 parameters take the values of stored master weights, new master weights those of the stored parameters; moments
// of another dtype are converted alike. Throws not_found or invalid_argument naming the tensor when the checkpoint is
// of another model or optimizer, corrupt when its bytes are damaged.
void restore_training_tensors(CheckpointReader& reader, nn::CausalLm& model, nn::Optimizer& optimizer);

// Parameters only: for evaluation and export of a checkpoint.
void restore_parameters(CheckpointReader& reader, nn::CausalLm& model);

}  // namespace quench
