#pragma once
// Scale of attention scores. Architectures whose loader derives it from the sizes alone (GgufArchitecture::score_scale)
// get the model's own scale through the weights: norms of queries, or q_proj in a model without them.

#include <string>
#include <vector>

#include "export/formats/model_tensors.h"
#include "nn/spec/model_config.h"

namespace quench {

// The model's scale over the loader's; 1 if they are equal to 1e-6.
[[nodiscard]] float gguf_query_factor(const nn::ModelConfig& config);

// The config of a file: with the loader's scale.
[[nodiscard]] nn::ModelConfig gguf_stored_config(nn::ModelConfig config);

// Sets ModelTensor::factor, and `config` to gguf_stored_config().
void fold_query_scale(std::vector<ModelTensor>& tensors, nn::ModelConfig& config);

// One line on the first tensor with a factor; "": none. `config`: the file's.
[[nodiscard]] std::string folded_scale_text(const std::vector<ModelTensor>& tensors, const nn::ModelConfig& config);

}  // namespace quench
