#pragma once
// Folders of quant_method "awq" (AutoAWQ, GPTQModel), 4 bits with zero points. Version gemm: qweight i32 [in, out / 8],
// qzeros i32 [groups, out / 8], eight outputs a word in the order 0, 2, 4, 6, 1, 3, 5, 7; scales [groups, out]. Version
// gemv: qweight i32 [out, in / 8], qzeros i32 [out, words], scales [out, 8 * words], in order, padded.

#include <filesystem>
#include <memory>

#include "export/formats/stored_weights.h"

namespace quench {

// Throws unsupported naming config.json and key, corrupt naming the tensor.
[[nodiscard]] std::unique_ptr<StoredWeights> open_awq(const std::filesystem::path& folder, const Json& quantization);

}  // namespace quench
