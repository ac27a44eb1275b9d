#pragma once
// Limits of tensor parallelism: which models a number of ranks can split.

#include <string>

#include "nn/spec/model_config.h"

namespace quench::nn {

// Why `ranks` ranks cannot hold slices of the model, naming the key of config.json, or empty. They split query and key
// heads, the intermediate width and the vocabulary, each in equal parts.
[[nodiscard]] std::string tensor_parallel_fault(const ModelConfig& config, std::int64_t ranks);

}  // namespace quench::nn
