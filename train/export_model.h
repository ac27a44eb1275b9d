#pragma once
// A trained model as a Hugging Face folder.

#include "nn/causal_lm.h"
#include "train/config/run_config.h"
#include "train/hf/export_folder.h"
#include "train/run_model.h"

namespace quench {

// Where the run exports to, and what of the run must not be in the way. The config has an export section.
[[nodiscard]] ExportTarget export_target(const RunConfig& config);

// Writes the model to export.folder with the small files that the run folder keeps (train/run_model.h). Weights are
// stored in training.dtype.
void export_model(const nn::CausalLm& model, const RunConfig& config, const RunModel& description);

}  // namespace quench
