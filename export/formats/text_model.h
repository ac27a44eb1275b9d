#pragma once
// The text model of a folder that holds a larger one: of Llama4ForConditionalGeneration, which reads images too, its
// Llama4ForCausalLM.

#include "export/formats/stored_weights.h"

namespace quench {

// The config.json that the text model alone would have: `config`'s text_config, with its dtype and the way its weights
// are stored where that says nothing. `config` itself, if its class is none of the above.
[[nodiscard]] Json text_model_config(Json config);

// The same of the weights: those under language_model. without that prefix; left_out() has the others. Weights of which
// none has the prefix are returned as they are.
[[nodiscard]] std::unique_ptr<StoredWeights> text_model_weights(std::unique_ptr<StoredWeights> weights);

// "multi_modal_projector (1 tensor), vision_model (34 tensors)": names by their first part.
[[nodiscard]] std::string summary_of(const std::vector<std::string>& left_out);

}  // namespace quench
