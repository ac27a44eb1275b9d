#pragma once
// Linear layers in blockwise float8, dense ones and those of experts (core/ops/quantize/block_float8.h):
//
//   y  = x W^T   x in blocks of 128 along in, W in squares of 128 x 128
//   dx = dy W    dy in blocks along out, the same squares of W
//   dW = dy^T x  both in blocks of 128 rows, of one expert each
//
// Blocks at the edges are continued with zeros. For the backward pass a layer keeps the codes of x that dW reads,
// unless x is there again anyway.

#include <memory>

#include "core/ops/experts/block_float8_gemm.h"
#include "nn/experts/expert_kernel.h"
#include "recipes/emulated/layers.h"
#include "recipes/recipe.h"

namespace quench::recipes {

struct BlockFloat8Options {
  EmulatedGemms float8;  // the products of float8 operands; the others run in high precision
  BlockGemms products = BlockGemms::native;
};

[[nodiscard]] std::shared_ptr<const nn::LinearKernel> block_float8_linear(const BlockFloat8Options& options);
[[nodiscard]] std::shared_ptr<const nn::ExpertKernel> block_float8_experts(const BlockFloat8Options& options);

}  // namespace quench::recipes
