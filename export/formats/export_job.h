#pragma once
// Input of a format's writer.

#include <filesystem>
#include <vector>

#include "export/formats/model_tensors.h"
#include "nn/spec/model_config.h"

namespace quench {

struct StoredKvCache;

struct ExportJob {
  const std::vector<ModelTensor>& tensors;
  const nn::ModelConfig& config;
  std::filesystem::path folder;  // exists, with config and tokenizer
  std::uint64_t max_shard_bytes;
  const Scheme* scheme = nullptr;           // scheme of the rules; null: unquantized
  const StoredKvCache* kv_cache = nullptr;  // export/kv_cache; null: none
};

}  // namespace quench
