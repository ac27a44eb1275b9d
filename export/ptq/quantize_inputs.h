#pragma once
// Fake quantization of GEMM inputs as in inference engines.

#include <optional>

#include "export/schemes/input_arithmetic.h"
#include "export/schemes/scheme.h"
#include "recipes/packed_linear.h"

namespace quench {

// Inputs [M,K]. Dynamic: integers as quantize_int; float8 by token, group or tensor amax as fake_quantize_float8,
// scales in the input's dtype; MX. Static, and NVFP4: `scale` of calibration (input_scale()).
// Throws corrupt naming `name` for a missing or non-positive scale, unsupported for other formats.
[[nodiscard]] recipes::InputRounding input_rounding(const OperandScheme& inputs, std::string_view name,
                                                    std::optional<float> scale = std::nullopt,
                                                    const InputArithmetic& arithmetic = {});

}  // namespace quench
