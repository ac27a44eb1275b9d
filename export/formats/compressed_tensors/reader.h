#pragma once
// Reads folders of any program.

#include "export/formats/stored_weights.h"

namespace quench {

[[nodiscard]] std::unique_ptr<StoredWeights> open_compressed_tensors(const std::filesystem::path& folder,
                                                                     const Json& quantization);

}  // namespace quench
