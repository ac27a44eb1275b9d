#pragma once
// Scales of weights that a run under recipe.learned_scales has trained, on their way into its exports.

#include <functional>
#include <map>
#include <string>

#include "export/ptq/quantize_model.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/config/run_config.h"

namespace quench {

struct LearnedScales {
  const Scheme* scheme = nullptr;      // that they belong to; null: there are none
  std::map<std::string, Tensor> rows;  // by the name of the weight's parameter: f32 [N, groups] on the CPU

  // Lets codes be those that training has simulated. Warns where the rules ask for others.
  void choose_in(QuantizationRules& rules) const;
};

// Those of a checkpoint. Throws nonfinite naming the layer whose scales are not all positive numbers.
[[nodiscard]] LearnedScales stored_scales(CheckpointReader& reader, const std::string& source);
// Those of a model in training; `whole` brings the whole value of a parameter of which this process holds a part; none:
// it holds all of it. Throws the same.
[[nodiscard]] LearnedScales trained_scales(nn::CausalLm& model, const RunConfig& config,
                                           const std::function<Tensor(const nn::Parameter&)>& whole = {});

// Writes the first scales of a model that has its weights (LinearKernel::begin_with).
void begin_learned_scales(nn::CausalLm& model);
// Throws nonfinite naming the first layer whose scales, of the rows here, are not all positive numbers.
void require_positive_scales(nn::CausalLm& model);

}  // namespace quench
