#pragma once
// SmoothQuant (Xiao et al., 2022, arXiv:2211.10438).

#include "export/methods/channel_scales.h"

namespace quench {

// s = max|x|^a / max|w|^(1 - a), a = smoothing. f32 [K], positive, finite; absent without quantized weights or inputs.
[[nodiscard]] std::optional<Tensor> smoothquant_scales(const ScaleChoiceArgs& args);

}  // namespace quench
