#pragma once
// AWQ, activation-aware weight quantization (Lin et al., 2023, arXiv:2306.00978).

#include "export/methods/channel_scales.h"

namespace quench {

// s = mean|x|^r, normalised by sqrt(max s * min s); r of least output error among 20 values from 0 to 0.95. f32 [K],
// positive, finite; absent if none lowers the error. Requires the Gram matrix.
[[nodiscard]] std::optional<Tensor> awq_scales(const ScaleChoiceArgs& args);

// A weight under its channel scales: of rtn() and, for scales of a row or group, of the scales of least squared error,
// columns weighted by the squares of their mean absolute or of their root mean square inputs, the one with the least
// error of outputs. Without a Gram matrix: rtn().
[[nodiscard]] QuantizedWeight awq_weight(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                                         std::optional<DType> scale_dtype, std::optional<float> shared_amax,
                                         const InputStatistics* inputs);

}  // namespace quench
