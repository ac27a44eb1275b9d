#pragma once
// 2:4 sparse weights in the layout sparse-24-bitmask of compressed-tensors: of each four elements two are stored, and a
// bit an element says which. Source: compressed-tensors 0.13, compressors/sparse_compressors/sparse_24_bitmask.py;
// releases from 2026 on no longer have it.
//
// A layer has "compressed" [N, K / 2] in the dtype of the weight, "bitmask" u8 [N, ceil(K / 8)] with the first element
// in the lowest bit, and "shape" i64 [2, 1].

#include <filesystem>
#include <memory>
#include <vector>

#include "core/json/json.h"
#include "export/formats/model_tensors.h"
#include "export/formats/stored_weights.h"

namespace quench {

// Writes linear layers whose weights are 2:4 so, and all else as it is. Returns the quantization_config for
// config.json. Throws bad_config where no layer is 2:4.
[[nodiscard]] Json write_sparse_24(const std::vector<ModelTensor>& tensors, const std::filesystem::path& folder,
                                   std::uint64_t max_shard_bytes);

// Whether a quantization_config of compressed-tensors says that weights are stored so and quantized no further.
[[nodiscard]] bool is_sparse_24(const Json& quantization);
// Reads such a folder: weights are dense, with their zeros.
[[nodiscard]] std::unique_ptr<StoredWeights> open_sparse_24(const std::filesystem::path& folder);

}  // namespace quench
