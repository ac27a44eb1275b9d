#pragma once
// Comparison of the scheme simulated by a QAT run with the schemes of an export.

#include <set>
#include <span>
#include <string>
#include <vector>

#include "export/formats/model_tensors.h"
#include "export/ptq/quantize_model.h"
#include "recipes/convert.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/config/run_config.h"

namespace quench {

struct TrainedScheme {
  const Scheme* scheme = nullptr;        // null: no simulated scheme
  std::string recipe;                    // recipe.name
  std::set<std::string> high_precision;  // weight names left in high precision by the recipe

  // Layers of `tensors` (Hugging Face names) left in high precision by the recipe.
  [[nodiscard]] std::vector<std::string> untrained_layers(const std::vector<ModelTensor>& tensors) const;
  // One warning per scheme in `rules` that stores layers trained for another one.
  void warn_of_others(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules) const;
};

// Scheme of a model in training, from its conversion.
[[nodiscard]] TrainedScheme trained_scheme(const RunConfig& config, nn::CausalLm& model,
                                           std::span<const recipes::LayerConversion> conversion);
// Scheme of the run that wrote the checkpoint. `source` names it in config errors.
[[nodiscard]] TrainedScheme stored_scheme(const CheckpointReader& reader, const nn::ModelConfig& model,
                                          const std::string& source);

}  // namespace quench
