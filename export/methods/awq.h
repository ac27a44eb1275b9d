#pragma once
// AWQ, activation-aware weight quantization (Lin et al., 2023, arXiv:2306.00978).

#include "export/methods/channel_scales.h"

namespace quench {

// s = mean|x|^r, normalised by sqrt(max s * min s), with the r of 20 from 0 to 0.95 for which the quantized weights
// change the layer's outputs least. f32 [K], positive and finite; absent where no factor lowers the error. Needs the
// Gram matrix.
[[nodiscard]] std::optional<Tensor> awq_scales(const ScaleChoiceArgs& args);

}  // namespace quench
