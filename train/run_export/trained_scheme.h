#pragma once
// Scheme simulated by a QAT run, against those of an export.

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
  const Scheme* scheme = nullptr;                    // null: none
  std::string recipe;                                // recipe.name
  std::set<std::string> high_precision;              // weight names left so by the recipe
  recipes::GgufTypes types = {};                     // layers' types, where `scheme` is one of GGUF files
  std::vector<recipes::LayerRule> layer_rules = {};  // recipe.rules

  // Layers of `tensors` (Hugging Face names) that the recipe left in high precision.
  [[nodiscard]] std::vector<std::string> untrained_layers(const std::vector<ModelTensor>& tensors) const;
  // Whether the scheme stores what the recipe trains in the layer.
  [[nodiscard]] bool is_stored_by(const Scheme& stored, const std::string& layer) const;
  // Throws unsupported for layers that `rules` store under the trained scheme after a factor (ModelTensor::factor) that
  // is no power of two: their codes would be others.
  void require_kept_codes(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules) const;
  // One warning per scheme in `rules` that stores layers trained for another.
  void warn_of_others(const std::vector<ModelTensor>& tensors, const QuantizationRules& rules) const;
};

// From the model's conversion.
[[nodiscard]] TrainedScheme trained_scheme(const RunConfig& config, nn::CausalLm& model,
                                           std::span<const recipes::LayerConversion> conversion);
// Scheme of the run that wrote the checkpoint. `source`: for config errors.
[[nodiscard]] TrainedScheme stored_scheme(const CheckpointReader& reader, const nn::ModelConfig& model,
                                          const std::string& source);

}  // namespace quench
