#pragma once
// Block scales of stored MXFP4 weights, for exports in the same blocks.

#include <filesystem>
#include <functional>

#include "export/formats/model_tensors.h"

namespace quench {

// QuantizationRules::block_scales of weights that were read from a model folder; null unless the folder holds MXFP4
// blocks that are read as dense weights. Throws like the folder's reader.
[[nodiscard]] std::function<Tensor(const ModelTensor&)> stored_block_scales(const std::filesystem::path& folder);

}  // namespace quench
