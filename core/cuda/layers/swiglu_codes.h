#pragma once
// Gated units with float8 codes under given scales.

#include "core/cuda/common/launch.h"
#include "core/ops/swiglu.h"

namespace quench::cuda {

// False, with nothing launched, if unsupported: bf16, rows of whole 16-byte vectors, row counts that 16 divides, codes
// e4m3 of the output and e5m2 of the input's gradient, nothing else but the amax.
[[nodiscard]] bool swiglu_codes(const OpLaunch& launch, const SwigluArgs& args);
[[nodiscard]] bool swiglu_backward_codes(const OpLaunch& launch, const SwigluBackwardArgs& args);

}  // namespace quench::cuda
