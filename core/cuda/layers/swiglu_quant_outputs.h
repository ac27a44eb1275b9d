#pragma once
// SwiGLU by whole rows, which quantization outputs with codes or column maxima need.

#include "core/cuda/common/launch.h"
#include "core/ops/swiglu.h"

namespace quench::cuda {

// Both ops with their quantization outputs, or false, with nothing done, if the kernels do not take the operands: they
// are for bf16, aligned to 16 bytes, with rows that fit in shared memory twice.
[[nodiscard]] bool swiglu_by_rows(const OpLaunch& launch, const SwigluArgs& args);
[[nodiscard]] bool swiglu_backward_by_rows(const OpLaunch& launch, const SwigluBackwardArgs& args);

}  // namespace quench::cuda
