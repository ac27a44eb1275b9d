#pragma once
// RMSNorm with fused float8 rows or column amax.

#include "core/cuda/common/launch.h"
#include "core/ops/norm.h"

namespace quench::cuda {

// All parts in one read of x; bit-identical to the kernel without. False, with nothing launched, if unsupported: not
// bf16 in whole 16-byte vectors, or rows too narrow or too wide.
[[nodiscard]] bool rms_norm_by_rows(const OpLaunch& launch, const RmsNormArgs& args);

}  // namespace quench::cuda
