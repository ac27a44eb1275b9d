#pragma once
// Text model of a multimodal folder: Llama4ForCausalLM of Llama4ForConditionalGeneration.

#include "export/formats/stored_weights.h"

namespace quench {

// config.json of the text model: text_config of `config`, which inherits dtype and quantization_config where it has
// none. `config` unchanged for other classes.
[[nodiscard]] Json text_model_config(Json config);

// Weights under language_model., without that prefix; left_out() lists the others. Unchanged if no weight has the
// prefix.
[[nodiscard]] std::unique_ptr<StoredWeights> text_model_weights(std::unique_ptr<StoredWeights> weights);

// Names grouped by first component: "multi_modal_projector (1 tensor), vision_model (34 tensors)".
[[nodiscard]] std::string summary_of(const std::vector<std::string>& left_out);

}  // namespace quench
