#pragma once
// Reads model folders in TorchAO's safetensors layout (writer.h), those of other programs too.

#include "export/formats/stored_weights.h"

namespace quench {

// `quantization`, of config.json, is not asked: the files describe each weight.
[[nodiscard]] std::unique_ptr<StoredWeights> open_torchao(const std::filesystem::path& folder,
                                                          const Json& quantization);

}  // namespace quench
