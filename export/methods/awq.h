#pragma once
// AWQ, activation-aware weight quantization (Lin et al., 2023, arXiv:2306.00978).

#include "export/methods/channel_scales.h"

namespace quench {

// s = mean|x|^r, normalised by sqrt(max s * min s); r of least output error among 20 values from 0 to 0.95. f32 [K],
// positive, finite; absent if none lowers the error. Requires the Gram matrix.
[[nodiscard]] std::optional<Tensor> awq_scales(const ScaleChoiceArgs& args);

}  // namespace quench
