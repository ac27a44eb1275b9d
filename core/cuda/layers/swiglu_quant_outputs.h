#pragma once
// Gated units with fused float8 rows or column amax.

#include "core/cuda/common/launch.h"
#include "core/ops/swiglu.h"

namespace quench::cuda {

// False, with nothing launched, if unsupported: bf16, 16-byte alignment, two rows in shared memory.
[[nodiscard]] bool swiglu_by_rows(const OpLaunch& launch, const SwigluArgs& args);
[[nodiscard]] bool swiglu_backward_by_rows(const OpLaunch& launch, const SwigluBackwardArgs& args);

}  // namespace quench::cuda
