#pragma once
// RTN: round to nearest, amax scales.

#include <span>

#include "core/tensor/tensor.h"
#include "export/schemes/quantized_weight.h"

namespace quench {

// `weight` f32 or bf16 [N,K], CPU. Integers: quantize_int (core/ops/quantize/quantize_int.h), as in QAT; scales in
// `scale_dtype` (default: the weight's). Float8: scale = amax / 448 rounded to that dtype, e4m3(w / scale) saturating;
// 1 for an all-zero group. MX: rceil. NVFP4: global scale of `shared_amax` (default: of the weight). GGUF types:
// squared errors times `importance` of the columns [K], at least 0; empty: 1; on `device` as quantize_blocks()
// (core/ops/quantize/quantize_gguf.h). Throws nonfinite naming `name` for NaN or infinity, unsupported as
// shape_problem().
[[nodiscard]] QuantizedWeight rtn(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                                  std::optional<DType> scale_dtype = {}, std::optional<float> shared_amax = {},
                                  std::span<const float> importance = {}, Device device = {});

// Given scales f32 [N, groups], symmetric integers; scales are first rounded to their stored dtype.
[[nodiscard]] QuantizedWeight round_under_scales(const Tensor& weight, const OperandScheme& scheme,
                                                 const Tensor& scales, std::string_view name,
                                                 std::optional<DType> scale_dtype = {});

}  // namespace quench
