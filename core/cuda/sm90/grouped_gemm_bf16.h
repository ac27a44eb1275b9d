#pragma once
// SM90 grouped GEMM with bf16 operands.

#include "core/cuda/common/launch.h"
#include "core/ops/experts/grouped_gemm.h"

namespace quench::cuda {

// False, without a launch, if unsupported (device, shape, alignment, build).
[[nodiscard]] bool grouped_gemm_sm90(const OpLaunch& launch, const GroupedGemmArgs& args);
[[nodiscard]] bool grouped_wgrad_sm90(const OpLaunch& launch, const GroupedWgradArgs& args);

}  // namespace quench::cuda
