#pragma once
// Names of a model that was saved without its head (Transformers' base_model_prefix): "layers.0..." for
// "model.layers.0...".

#include <memory>

#include "export/formats/stored_weights.h"

namespace quench {

// Under the names with "model."; "lm_head." stays. Unchanged if the names have it.
[[nodiscard]] std::unique_ptr<StoredWeights> base_model_weights(std::unique_ptr<StoredWeights> weights);

}  // namespace quench
