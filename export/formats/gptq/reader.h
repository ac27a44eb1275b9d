#pragma once
// Folders of quant_method "gptq" (AutoGPTQ, GPTQModel, Optimum): qweight i32 [in * bits / 32, out], bit streams down
// the columns; qzeros i32 [groups, out * bits / 32]; scales [groups, out]; g_idx i32 [in], the group of an input. Under
// checkpoint_format "gptq" zero points are stored less 1, under "gptq_v2" as they are.

#include <filesystem>
#include <memory>

#include "export/formats/stored_weights.h"

namespace quench {

// 2, 3, 4 and 8 bits. Layers in act-order (desc_act) are read dense. Throws unsupported naming config.json and key,
// corrupt naming the tensor.
[[nodiscard]] std::unique_ptr<StoredWeights> open_gptq(const std::filesystem::path& folder, const Json& quantization);

}  // namespace quench
