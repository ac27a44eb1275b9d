#pragma once
// Weights in e4m3, NAME.weight, with scales (multipliers) next to them: of Transformers' quant_method "fp8"
// (DeepSeek-V3, Ministral 3) NAME.weight_scale_inv and NAME.activation_scale, of vLLM's and ModelOpt's folders
// NAME.weight_scale and NAME.input_scale.

#include <filesystem>
#include <memory>

#include "export/formats/stored_weights.h"

namespace quench {

// Scales of blocks have this side; 0: one scale a tensor, or a row. Static inputs: under one scale; else by token, or
// by groups of the side.
struct Float8Form {
  std::int64_t block = 0;
  bool static_inputs = false;
};
// Scales in F32, BF16, F16 or powers of two (F8_E8M0, or their bytes as U8).
[[nodiscard]] std::unique_ptr<StoredWeights> open_float8_weights(const std::filesystem::path& folder,
                                                                 const Float8Form& form);

}  // namespace quench
