#pragma once
// Types of a model's layers under a mix (export/mixes/mix.h).

#include <vector>

#include "export/ptq/quantize_model.h"
#include "nn/spec/model_config.h"

namespace quench {

// Sets `mixed` of the rules, for layers that it lacks, and `embeddings` unless named, by their scheme's mix; without
// one nothing. `tensors` of model_tensors(). Throws bad_config naming the tensor if its type needs an importance matrix
// and none will be there.
void choose_mixed_types(QuantizationRules& rules, const std::vector<ModelTensor>& tensors,
                        const nn::ModelConfig& config);

}  // namespace quench
