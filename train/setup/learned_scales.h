#pragma once
// Learned weight scales of a run under recipe.learned_scales, for its exports.

#include <functional>
#include <map>
#include <string>

#include "export/ptq/quantize_model.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/config/run_config.h"

namespace quench {

struct LearnedScales {
  const Scheme* scheme = nullptr;      // scheme of the scales; null: none
  std::map<std::string, Tensor> rows;  // by weight parameter name: f32 [N, groups] on the CPU

  // Makes the rules use the trained scales. Warns if the rules have another scheme.
  void choose_in(QuantizationRules& rules) const;
};

// Scales in a checkpoint. Throws nonfinite naming a layer with scales that are not positive numbers.
[[nodiscard]] LearnedScales stored_scales(CheckpointReader& reader, const std::string& source);
// Scales of a model in training; `whole` gathers sharded parameters, unset: unsharded. Throws the same.
[[nodiscard]] LearnedScales trained_scales(nn::CausalLm& model, const RunConfig& config,
                                           const std::function<Tensor(const nn::Parameter&)>& whole = {});

// Initializes scales from the model's weights (LinearKernel::begin_with).
void begin_learned_scales(nn::CausalLm& model);
// Throws nonfinite naming the first layer with local scales that are not positive numbers.
void require_positive_scales(nn::CausalLm& model);

}  // namespace quench
