#pragma once
// recipe.name "auto" in a run.

#include "core/device/device.h"
#include "train/checkpoint/checkpoint_state.h"
#include "train/config/resolved_config.h"

namespace quench {

// What "auto" stands for: what the checkpoint that the run resumes from says; else, on a GPU with float8 tensor cores,
// the fastest within the default error bound and the device's memory (train/probe/probe.h); else bf16. The reason
// says why. Any other recipe is its own choice.
[[nodiscard]] RecipeChoice resolve_auto_recipe(const RunConfig& config, Device device);

// The choice, where there was one, in the checkpoint's extra state.
void store_choice(CheckpointState& state, const ResolvedConfig& config);

}  // namespace quench
