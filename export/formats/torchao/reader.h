#pragma once
// Reads folders of any program.

#include "export/formats/stored_weights.h"

namespace quench {

// `quantization` (config.json) is ignored: the files describe weights.
[[nodiscard]] std::unique_ptr<StoredWeights> open_torchao(const std::filesystem::path& folder,
                                                          const Json& quantization);

}  // namespace quench
