#pragma once
// A trained model as a Hugging Face folder.

#include "nn/causal_lm.h"
#include "train/config/run_config.h"
#include "train/model_folder/export_folder.h"
#include "train/setup/run_model.h"

namespace quench {

// Writes the model to export.folder with the small files that the run folder keeps (train/setup/run_model.h). Weights
// are stored in training.dtype.
void export_model(const nn::CausalLm& model, const RunConfig& config, const RunModel& description);

}  // namespace quench
