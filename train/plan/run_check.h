#pragma once
// Pre-run validation shared by `quench train` and `quench config check`, for a config that load_run_config has
// accepted.

#include <optional>

#include "core/device/device.h"
#include "nn/spec/model_config.h"
#include "train/config/run_config.h"

namespace quench {

// Throws before anything is read, written or allocated: bad_config or unsupported for a recipe, filter or export that
// does not fit the model; with a device, bad_config for unsupported settings and out_of_memory for a run exceeding its
// memory. Impossible sizes are refused without an estimate. Returns the config to run: with a device, fit_run()'s.
RunConfig require_startable(RunConfig config, const std::optional<Device>& device);

// Lower bound of a run's device memory, without a plan of it: weights (with LoRA the frozen ones alone), gradients,
// optimizer state, one residual-stream tensor per layer, and the batch.
[[nodiscard]] double least_run_bytes(const RunConfig& config, const nn::ModelConfig& model);

}  // namespace quench
