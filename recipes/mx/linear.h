#pragma once
// Linear layers in MXFP8 on block-scaled tensor cores (core/ops/block_scaled_gemm.h).

#include "nn/modules/linear_kernel.h"
#include "recipes/emulated/layers.h"

namespace quench::recipes {

// The values of emulated_linear(mx_rounding(mode), gemms, {}): operands are cast along the reduction axis, with
// partial blocks zero-padded; GEMMs outside `gemms` run in high precision. Saves x; the bias is added to the rounded
// result.
[[nodiscard]] std::shared_ptr<const nn::LinearKernel> mx_linear(MxScaleMode mode, EmulatedGemms gemms);

}  // namespace quench::recipes
