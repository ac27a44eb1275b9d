#pragma once
// Grouped products of bf16 on the tensor cores of compute capability 9.0.

#include "core/cuda/common/launch.h"
#include "core/ops/experts/grouped_gemm.h"

namespace quench::cuda {

// Run the product and return true, or return false where another kernel is to: other devices, sizes, alignments, or a
// build without code for compute capability 9.0a.
[[nodiscard]] bool grouped_gemm_wgmma(const OpLaunch& launch, const GroupedGemmArgs& args);
[[nodiscard]] bool grouped_wgrad_wgmma(const OpLaunch& launch, const GroupedWgradArgs& args);

}  // namespace quench::cuda
