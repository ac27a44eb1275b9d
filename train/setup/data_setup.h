#pragma once
// From a run's config to its training and validation rows.

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
  std::shared_ptr<const Dataset> validation;   // null when the config has none
  std::shared_ptr<const Tokenizer> tokenizer;  // null when the data are token shards and no tokenizer is named
  std::vector<std::string> plan;               // lines for the start of the run
};

// Opens token shards; text and JSONL are tokenized first, once, into data.cache. Throws the readers' errors, and
// bad_config with the arithmetic when the data are smaller than one batch. A stop signal while text is tokenized throws
// TokenizationStopped (data/text/tokenize.h) with the signal's number; the same call goes on there.
// With `checks`, every token is checked before the first is used (data/formats/validation_cache.h).
[[nodiscard]] DataSetup open_data(const RunConfig& config, const nn::ModelConfig& model,
                                  ValidationCache* checks = nullptr);

// data.tokenizer, else the tokenizer of the model folder, else the one that `quench tokenize` left beside the first
// shards that have one, or null.
[[nodiscard]] std::shared_ptr<const Tokenizer> run_tokenizer(const RunConfig& config);

// Sequences of one optimizer step: global_batch_size, or one micro-batch of each process.
[[nodiscard]] std::int64_t global_batch_size(const RunConfig& config);

// What makes the validation loss tell little: data of fewer tokens than one sequence; empty: nothing does.
[[nodiscard]] std::string validation_warning(const DataSetup& data);

// Optimizer steps of the run: training.steps, or as many as training.epochs passes over the data need, whichever is
// smaller.
[[nodiscard]] std::int64_t total_steps(const RunConfig& config, const Dataset& train);

}  // namespace quench
