#pragma once
// A trained model as a Hugging Face folder.

#include <filesystem>

#include "nn/causal_lm.h"
#include "train/config/run_config.h"
#include "train/run_model.h"

namespace quench {

// Writes the model with the small files that the run folder keeps (train/run_model.h). Weights are stored in
// training.dtype.
void export_model(const nn::CausalLm& model, const RunConfig& config, const RunModel& description,
                  const std::filesystem::path& folder);

}  // namespace quench
