#pragma once
// A trained model as a Hugging Face folder.

#include <filesystem>

#include "data/tokenizer/tokenizer.h"
#include "nn/causal_lm.h"
#include "train/config/run_config.h"

namespace quench {

// Writes the model with the tokenizer of the run (its files where they are known, else what the tokenizer saves).
// Weights are stored in training.dtype.
void export_model(const nn::CausalLm& model, const RunConfig& config, const Tokenizer* tokenizer,
                  const std::filesystem::path& folder);

}  // namespace quench
