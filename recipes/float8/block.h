#pragma once
// Linear and expert layers with float8 block scaling (core/ops/quantize/block_float8.h): x and dy in 1x128 groups along
// the reduction axis (wgrad: within one expert), W in 128x128 blocks. Partial blocks are zero-padded. Saved for the
// backward pass: the columnwise quantized x, unless x is free.

#include <memory>

#include "core/ops/experts/block_float8_gemm.h"
#include "nn/experts/expert_kernel.h"
#include "recipes/emulated/layers.h"
#include "recipes/recipe.h"

namespace quench::recipes {

struct BlockFloat8Options {
  EmulatedGemms float8;
  BlockGemms gemms = BlockGemms::native;
};

[[nodiscard]] std::shared_ptr<const nn::LinearKernel> block_float8_linear(const BlockFloat8Options& options);
[[nodiscard]] std::shared_ptr<const nn::ExpertKernel> block_float8_experts(const BlockFloat8Options& options);

}  // namespace quench::recipes
