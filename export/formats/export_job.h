#pragma once
// Input of a format's writer.

#include <filesystem>
#include <vector>

#include "export/formats/model_tensors.h"
#include "nn/spec/model_config.h"

namespace quench {

struct ExportJob {
  const std::vector<ModelTensor>& tensors;
  const nn::ModelConfig& config;
  std::filesystem::path folder;  // exists, with config and tokenizer
  std::uint64_t max_shard_bytes;
  const Scheme* scheme = nullptr;  // scheme of the rules; null: unquantized
};

}  // namespace quench
