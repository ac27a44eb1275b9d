#pragma once
// Reader of folders in TorchAO's safetensors layout (writer.h), including those of other programs.

#include "export/formats/stored_weights.h"

namespace quench {

// `quantization` (config.json) is ignored: the files describe each weight.
[[nodiscard]] std::unique_ptr<StoredWeights> open_torchao(const std::filesystem::path& folder,
                                                          const Json& quantization);

}  // namespace quench
