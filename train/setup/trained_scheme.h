#pragma once
// Comparison of the scheme that a QAT run has simulated with the schemes that an export stores.

#include <set>
#include <span>
#include <string>
#include <vector>

#include "export/model_tensors.h"
#include "export/quantize_model.h"
#include "recipes/convert.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/config/run_config.h"

namespace quench {

struct TrainedScheme {
  const Scheme* scheme = nullptr;        // null: the run has simulated none
  std::string recipe;                    // recipe.name
  std::set<std::string> high_precision;  // names of the weights that the recipe has left in high precision

  // Layers among `tensors`, by the names of Hugging Face checkpoints, that the recipe has left in high precision.
  [[nodiscard]] std::vector<std::string> untrained_layers(const std::vector<ModelTensor>& tensors) const;
  // Logs one warning per scheme of `rules` that stores layers which were trained for another one.
  void warn_of_others(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules) const;
};

// Scheme of a model in training, from the outcome of its conversion.
[[nodiscard]] TrainedScheme trained_scheme(const RunConfig& config, nn::CausalLm& model,
                                           std::span<const recipes::LayerConversion> conversion);
// Scheme of the run that wrote the checkpoint. `source` names the checkpoint in errors of its stored config.
[[nodiscard]] TrainedScheme stored_scheme(const CheckpointReader& reader, const nn::ModelConfig& model,
                                          const std::string& source);

}  // namespace quench
