#pragma once
// Batches and second models of a planned run, on the meta device.

#include <optional>

#include "data/sampling/loader.h"
#include "distributed/ranks.h"
#include "nn/spec/model_config.h"
#include "train/config/run_config.h"

namespace quench {

// Weights of a second model, on the device and in host memory.
struct SecondModelBytes {
  std::int64_t device = 0;
  std::int64_t host = 0;
};

// Of the folder's model in preference.reference, which computes log-probabilities before the first step; 0 without one.
[[nodiscard]] SecondModelBytes reference_weight_bytes(const RunConfig& config, const distributed::Ranks* ranks);

// Model whose forward pass every micro-batch adds: the teacher of section distill, unless its targets are stored, or
// preference.reference base. `own`: the trained model; nullopt: none.
[[nodiscard]] std::optional<nn::ModelConfig> second_model(const RunConfig& config, const nn::ModelConfig& own);

// meta_batch(); with preferences, each row is a pair of equally long answers.
[[nodiscard]] Batch planned_batch(const RunConfig& config);

}  // namespace quench
