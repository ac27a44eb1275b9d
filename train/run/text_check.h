#pragma once
// Refusals of a run's texts before its data are read, shared by `quench train` and `quench config check`.

#include <cstdint>
#include <optional>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "nn/spec/model_config.h"
#include "train/config/run_config.h"

namespace quench {

// Tokens of evaluation.prompts, rendered by the chat template under evaluation.chat_prompts.
struct EncodedPrompts {
  std::vector<std::vector<std::int32_t>> ids;
  std::optional<std::int32_t> end_of_turn;  // ends an answer to a chat prompt
};
// Throws bad_config for prompts that are empty or leave no space in the model's context, and without a tokenizer or
// the chat template that they need.
[[nodiscard]] EncodedPrompts encode_prompts(const RunConfig& config, const nn::ModelConfig& model,
                                            const Tokenizer* tokenizer);

// These, the tokenizer and that of a teacher, and the chat template with its date and arguments if a data file is text.
// Reads the tokenizer, the template and the names of the data files.
void require_texts(const RunConfig& config, const nn::ModelConfig& model);

}  // namespace quench
