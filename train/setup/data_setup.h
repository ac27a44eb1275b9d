#pragma once
// Training and validation data of a run.

#include <memory>
#include <string>
#include <vector>

#include "data/sampling/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "nn/model_config.h"
#include "train/config/run_config.h"

namespace quench {

struct DataSetup {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> validation;   // null if not configured
  std::shared_ptr<const Tokenizer> tokenizer;  // null for token shards without a named tokenizer
  std::vector<std::string> plan;               // lines of the start report
};

// Opens token shards; text and JSONL are first tokenized into data.cache, once. Throws readers' errors, and bad_config
// with the arithmetic for less data than one batch. A stop signal during tokenization throws TokenizationStopped
// (data/text/tokenize.h); the same call resumes it. `checks`: validates all tokens before use
// (data/formats/validation_cache.h).
[[nodiscard]] DataSetup open_data(const RunConfig& config, const nn::ModelConfig& model,
                                  ValidationCache* checks = nullptr);

// data.tokenizer, else the model folder's, else that of the first shards with one from `quench tokenize`, or null.
[[nodiscard]] std::shared_ptr<const Tokenizer> run_tokenizer(const RunConfig& config);

// Sequences per optimizer step: global_batch_size, or one micro-batch per rank.
[[nodiscard]] std::int64_t global_batch_size(const RunConfig& config);

// Warning for validation data shorter than one sequence; else empty.
[[nodiscard]] std::string validation_warning(const DataSetup& data);

// Optimizer steps of the run: minimum of training.steps and the steps of training.epochs.
[[nodiscard]] std::int64_t total_steps(const RunConfig& config, const Dataset& train);

}  // namespace quench
