#pragma once
// Quantization of a weight to the nearest codes, the scales from the largest magnitudes alone.

#include "core/tensor/tensor.h"
#include "export/schemes/quantized_weight.h"

namespace quench {

// `weight` f32 or bf16 [N,K] on the CPU. Integers as quantize_int chooses them (core/ops/quantize/quantize_int.h),
// which quantization-aware training simulates; scales are stored in `scale_dtype`, by default the weight's. Float8:
// scale = amax / 448 rounded to that dtype, code = e4m3(w / scale), saturating; a zero group has scale 1. MX scales by
// the rule rceil; NVFP4 with a scale of the tensor. Throws nonfinite naming `name` for a weight that holds NaN or
// infinity, unsupported where shape_problem() has one.
[[nodiscard]] QuantizedWeight rtn(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                                  std::optional<DType> scale_dtype = {});

// The same with given scales f32 [N, groups] of integer codes with a symmetric mapping; they are rounded to the dtype
// that they are stored in first.
[[nodiscard]] QuantizedWeight round_under_scales(const Tensor& weight, const OperandScheme& scheme,
                                                 const Tensor& scales, std::string_view name,
                                                 std::optional<DType> scale_dtype = {});

}  // namespace quench
