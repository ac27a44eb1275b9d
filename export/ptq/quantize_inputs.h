#pragma once
// The inputs of quantized products as servers see them: rounded to codes and back.

#include <optional>

#include "core/ops/quantize/quantize_int.h"
#include "export/schemes/scheme.h"
#include "recipes/packed_linear.h"

namespace quench {

// The rounding of a scheme's inputs [M,K], with scales made for each input: integers as quantize_int chooses them,
// float8 under the largest magnitude of a token, a group or the tensor as fake_quantize_float8 does with scales in the
// dtype of the input, MX blocks, NVFP4; or under a scale that calibration found, `scale` (input_scale()). `division` is
// that of integers. Throws corrupt naming `name` where the scale is missing or no positive number, unsupported for
// formats without a rounding kernel.
[[nodiscard]] recipes::InputRounding input_rounding(const OperandScheme& inputs, std::string_view name,
                                                    std::optional<float> scale = std::nullopt,
                                                    IntDivision division = IntDivision::quotient);

}  // namespace quench
