#pragma once
// Second model of a run without gradients: teacher of a distillation, reference of a preference loss.

#include <string>

#include "distributed/ranks.h"
#include "recipes/lora/base_form.h"
#include "train/config/run_config.h"
#include "train/objective/teacher.h"

namespace quench {

struct FrozenWeights {
  std::string folder;                                 // empty: the run's model at step 0
  recipes::BaseForm form = recipes::BaseForm::dense;  // of linear layers; stored: needs a quantized folder
  bool offload = false;                               // in pinned host memory (nn/weight_offload.h)
};

// In the run's dtype, sharded over `ranks`, if any. Weights that are not sharded are quantized and offloaded one by
// one. Offloaded shards: those of decoder layers from distributed::kSmallBytes on. Device meta: without values. Throws
// as load_weights().
[[nodiscard]] FrozenModel make_frozen_model(const RunConfig& config, const nn::ModelConfig& architecture,
                                            const FrozenWeights& weights, Device device,
                                            const distributed::Ranks* ranks);

}  // namespace quench
