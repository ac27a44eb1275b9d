#pragma once
// Folders of quant_method "bitsandbytes", as Transformers writes them. 4 bits (NF4, FP4): NAME.weight holds two codes a
// byte, the first in the high nibble, of the flattened matrix; next to it ".absmax" of blocks, ".quant_map" (16 values)
// and the JSON text ".quant_state.bitsandbytes__nf4"; with double quantization absmax are codes of ".nested_quant_map"
// under ".nested_absmax". 8 bits: NAME.weight i8 under LAYER.SCB f32, the amax of rows.

#include <filesystem>
#include <memory>

#include "export/formats/stored_weights.h"

namespace quench {

inline constexpr std::string_view kBitsandbytesMethod = "bitsandbytes";

// True for 4 bits: read dense, in the dtype that the folder dequantizes to.
[[nodiscard]] bool is_bitsandbytes_4bit(const Json& quantization);
// 8 bits are packed; inputs are not quantized. Throws corrupt or unsupported naming the tensor.
[[nodiscard]] std::unique_ptr<StoredWeights> open_bitsandbytes(const std::filesystem::path& folder,
                                                               const Json& quantization);

}  // namespace quench
