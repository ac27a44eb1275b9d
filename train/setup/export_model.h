#pragma once
// A trained model as a Hugging Face folder.

#include "distributed/ranks.h"
#include "nn/causal_lm.h"
#include "recipes/lora/adapters.h"
#include "train/config/run_config.h"
#include "train/model_folder/export_folder.h"
#include "train/setup/run_model.h"

namespace quench {

// Writes the model to export.folder with the small files that the run folder keeps (train/setup/run_model.h). Weights
// are stored in training.dtype. Adapters, null where there are none, are merged into the model's weights, or, with
// export.format "peft", all that is written. In a run of several processes (`ranks` not null; it has no adapters) all
// call it, and rank 0 writes, one parameter after another.
void export_model(nn::CausalLm& model, const recipes::Adapters* adapters, const RunConfig& config,
                  const RunModel& description, const distributed::Ranks* ranks);

}  // namespace quench
