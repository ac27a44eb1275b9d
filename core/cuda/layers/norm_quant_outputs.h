#pragma once
// RMSNorm with quantization outputs that include rows, or the largest magnitudes of columns.

#include "core/cuda/common/launch.h"
#include "core/ops/norm.h"

namespace quench::cuda {

// The forward pass with every part of its quantization outputs, in one reading. False, and nothing is done, where it
// cannot: operands that are not bf16 in whole 16-byte pieces, rows that are too narrow or too wide. The bits are those
// of the kernel without quantization outputs.
[[nodiscard]] bool rms_norm_by_rows(const OpLaunch& launch, const RmsNormArgs& args);

}  // namespace quench::cuda
