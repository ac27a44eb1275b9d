#pragma once
// 2:4 sparse weights as compressed-tensors 0.13's sparse-24-bitmask
// (compressors/sparse_compressors/sparse_24_bitmask.py; removed in releases from 2026): two of four elements, and a
// bitmask.
//
// Per layer: "compressed" [N, K / 2] in the weight's dtype, "bitmask" u8 [N, ceil(K / 8)], first element in the lowest
// bit, "shape" i64 [2, 1].

#include <filesystem>
#include <memory>
#include <vector>

#include "core/json/json.h"
#include "export/formats/model_tensors.h"
#include "export/formats/stored_weights.h"

namespace quench {

// Other tensors are dense. Returns the quantization_config. Throws bad_config if no layer is 2:4.
[[nodiscard]] Json write_sparse_24(const std::vector<ModelTensor>& tensors, const std::filesystem::path& folder,
                                   std::uint64_t max_shard_bytes);

// This layout without further quantization.
[[nodiscard]] bool is_sparse_24(const Json& quantization);
// Weights are returned dense, with zeros.
[[nodiscard]] std::unique_ptr<StoredWeights> open_sparse_24(const std::filesystem::path& folder);

}  // namespace quench
