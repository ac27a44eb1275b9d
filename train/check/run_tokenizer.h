#pragma once
// Tokenizer of a run, and its new tokens (model.add_tokens).

#include <memory>

#include "data/tokenizer/tokenizer.h"
#include "train/config/run_config.h"

namespace quench {

// data.tokenizer, else the model folder's, else the first shards', or null; with the tokens of model.add_tokens. Throws
// the errors of load_tokenizer(), and KeyError for these tokens.
[[nodiscard]] std::shared_ptr<const Tokenizer> run_tokenizer(const RunConfig& config);

// Sets what depends on the new tokens: model.vocab_size, if it has too few rows (as Transformers: a vocabulary padded
// beyond the tokenizer is used first), and their ids in lora.trainable_token_indices. Idempotent. Throws as
// run_tokenizer(), and KeyError without a tokenizer.
void derive_new_tokens(RunConfig& config);

}  // namespace quench
