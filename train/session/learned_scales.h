#pragma once
// Learned weight scales (recipe.learned_scales), for exports.

#include <functional>
#include <map>
#include <string>

#include "export/ptq/quantize_model.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/config/run_config.h"

namespace quench {

struct LearnedScales {
  const Scheme* scheme = nullptr;      // null: none
  std::map<std::string, Tensor> rows;  // by weight parameter: f32 [N, groups] on the CPU

  // The rules use the trained scales. Warns if they have another scheme.
  void choose_in(QuantizationRules& rules) const;
};

// Throws nonfinite naming a layer with scales that are not positive numbers.
[[nodiscard]] LearnedScales stored_scales(CheckpointReader& reader, const std::string& source);
// `whole` gathers sharded parameters; or unset. Throws the same.
[[nodiscard]] LearnedScales trained_scales(nn::CausalLm& model, const RunConfig& config,
                                           const std::function<Tensor(const nn::Parameter&)>& whole = {});

// From the model's weights (LinearKernel::begin_with).
void begin_learned_scales(nn::CausalLm& model);
// Throws nonfinite naming the first such layer.
void require_positive_scales(nn::CausalLm& model);

}  // namespace quench
