#pragma once
// Datasets and tokenizer of a run.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/sampling/dataset.h"
#include "data/text/document_reader.h"
#include "data/tokenizer/tokenizer.h"
#include "nn/spec/model_config.h"
#include "train/check/run_tokenizer.h"
#include "train/config/run_config.h"

namespace quench {

struct DataSetup {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> validation;   // or null
  std::shared_ptr<const Tokenizer> tokenizer;  // null: token shards without a named tokenizer
  std::vector<std::string> plan;               // for the start report
};

// Opens token shards; text and JSONL are tokenized into data.cache, once. Throws readers' errors. A stop signal throws
// TokenizationStopped (data/text/tokenize.h); the same call resumes. `checks`: validates all tokens before use
// (data/formats/validation_cache.h).
[[nodiscard]] DataSetup open_data(const RunConfig& config, const nn::ModelConfig& model,
                                  ValidationCache* checks = nullptr);

// Throws bad_config for a tokenizer (null: none) of more tokens than the model's vocabulary.
void require_vocabulary(const RunConfig& config, const nn::ModelConfig& model, const Tokenizer* tokenizer);

// Chat template, its date and arguments, unresolved.
[[nodiscard]] ReaderOptions chat_options(const DataSection& data);

// Sequences: global_batch_size, or one micro-batch per rank.
[[nodiscard]] std::int64_t global_batch_size(const RunConfig& config);

// Lowers training.global_batch_size, and micro_batch_size if need be, to the rows of the data; returns the warning, or
// nothing if a global batch is there.
[[nodiscard]] std::string fit_batch(RunConfig& config, const Dataset& train);

// Samples of training.epochs, which the last step does not exceed; unset without that key.
[[nodiscard]] std::optional<std::uint64_t> end_sample(const RunConfig& config, const Dataset& train);

// For validation data shorter than one sequence; else empty.
[[nodiscard]] std::string validation_warning(const RunConfig& config, const DataSetup& data);

// Minimum of training.steps and the steps of training.epochs, of which `step` steps have read `samples` sequences:
// their number a step may have changed on resume.
[[nodiscard]] std::int64_t total_steps(const RunConfig& config, const Dataset& train, std::int64_t step = 0,
                                       std::int64_t samples = 0);

}  // namespace quench
