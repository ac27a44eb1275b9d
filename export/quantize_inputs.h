#pragma once
// The inputs of quantized products as servers see them: rounded to codes and back.

#include "export/scheme.h"
#include "recipes/packed_linear.h"

namespace quench {

// The rounding of a scheme's inputs [M,K], with scales made for each input: integers as quantize_int chooses them,
// float8 scaled by the largest magnitude of a token, a group or the tensor, MX blocks. Throws unsupported naming `name`
// for scales that were found by calibration, and for formats that nobody here rounds to.
[[nodiscard]] recipes::InputRounding input_rounding(const OperandScheme& inputs, std::string_view name);

}  // namespace quench
