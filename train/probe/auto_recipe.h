#pragma once
// Resolution of recipe.name "auto".

#include "core/device/device.h"
#include "train/checkpoint/checkpoint_state.h"
#include "train/config/resolved_config.h"

namespace quench {

// Choice for "auto": that of the checkpoint to resume from; else, on a GPU with float8 tensor cores, the fastest recipe
// within the default error bound and device memory (train/probe/probe.h); else bf16. Includes the reason. A named
// recipe is returned as is.
[[nodiscard]] RecipeChoice resolve_auto_recipe(const RunConfig& config, Device device);

// Stores the choice, if any, in the checkpoint's extra state.
void store_choice(CheckpointState& state, const ResolvedConfig& config);

}  // namespace quench
