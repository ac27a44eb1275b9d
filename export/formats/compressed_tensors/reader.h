#pragma once
// Reader of compressed-tensors model folders (config.h), including those of other programs.

#include "export/formats/stored_weights.h"

namespace quench {

[[nodiscard]] std::unique_ptr<StoredWeights> open_compressed_tensors(const std::filesystem::path& folder,
                                                                     const Json& quantization);

}  // namespace quench
