#pragma once
// Text model of a multimodal folder (Llama4ForCausalLM of Llama4ForConditionalGeneration, Gemma 3's alike).

#include "export/formats/stored_weights.h"

namespace quench {

// text_config, with dtype, tie_word_embeddings and quantization_config of `config` where absent, its token ids, and
// tied if either says so; `config` unchanged for other classes.
[[nodiscard]] Json text_model_config(Json config);

// Weights under language_model. or model.language_model. under the text model's names, and the head; left_out() lists
// others. Unchanged if none has such a prefix.
[[nodiscard]] std::unique_ptr<StoredWeights> text_model_weights(std::unique_ptr<StoredWeights> weights);

// "multi_modal_projector (1 tensor), vision_model (34 tensors)".
[[nodiscard]] std::string summary_of(const std::vector<std::string>& left_out);

}  // namespace quench
