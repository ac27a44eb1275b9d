#pragma once
// Training state in checkpoints: parameters, optimizer state, amax histories, weight averages.

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/decoder/causal_lm.h"
#include "nn/optim/optimizer.h"
#include "recipes/delayed_scaling.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/checkpoint_state.h"

namespace quench {

// Parameters ("model.layers.0...."), then moments and master weights ("optimizer.exp_avg....").
[[nodiscard]] std::vector<CheckpointTensor> training_tensors(nn::CausalLm& model, nn::Optimizer& optimizer);

// Overwrites all tensors. Other dtypes are widened exactly or rounded to nearest even. f32 parameters take stored
// master weights; new master weights take stored parameters; split ones are joined and made likewise. Throws not_found
// or invalid_argument naming the tensor for another model or optimizer, corrupt for damaged data.
void restore_training_tensors(CheckpointReader& reader, nn::CausalLm& model, nn::Optimizer& optimizer);

// Amax histories of delayed scaling, "recipe.amax_history.<layer>": equal on all ranks, saved by one.
void add_scaling(std::vector<CheckpointTensor>& tensors, const recipes::DelayedScaling& scaling);
// Layers without a stored history begin with an empty one; of a longer history the newest steps are read. Throws
// corrupt for damaged data.
void restore_scaling(CheckpointReader& reader, recipes::DelayedScaling& scaling);

// State of the objective as bytes, "objective.state"; nothing for an empty one.
void add_objective_state(std::vector<CheckpointTensor>& tensors, std::string_view state);
// Empty: none is stored.
[[nodiscard]] std::string objective_state(CheckpointReader& reader);

// Parameters alone, as restore_training_tensors().
void restore_parameters(CheckpointReader& reader, nn::CausalLm& model);

// Parameters whose average is stored (training.ema_decay) become it; others stay. Throws as require_averages().
void restore_averages(CheckpointReader& reader, nn::CausalLm& model);
// Throws not_found if the checkpoint has no averages.
void require_averages(const CheckpointReader& reader);

// Parameters in checkpoints become the mean over the given ones of a run, in f32, rounded once. Throws as
// restore_parameters(). Unsharded models.
void restore_mean(std::span<const std::filesystem::path> checkpoints, nn::CausalLm& model);

}  // namespace quench
