#pragma once
// The gradients of y = scale h b^T, the low-rank update of a layer's output, in one pass over the gradient of y.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct LowRankGradientsArgs {
  Tensor dy;  // [N,M], f32 or bf16; rows may be strided, columns contiguous
  Tensor h;   // [N,R], dtype of dy; likewise
  Tensor b;   // [M,R], dtype of dy, contiguous
  Tensor dh;  // [N,R], dtype of dy, rows may be strided: scale dy b
  Tensor db;  // [M,R], contiguous, dtype of dy or f32: scale dy^T h, plus what is there with `accumulate`
  float scale = 1.0f;
  bool accumulate = false;
};

// "low rank gradients 16384x8192x16 bf16": N x M x R.
[[nodiscard]] std::string op_label(const LowRankGradientsArgs& args);

extern constinit KernelSlot<LowRankGradientsArgs> low_rank_gradients_slot;

// Sums in f32, in an order that the sizes and the device's model decide; rounds as gemm() does. Throws
// invalid_argument naming the shapes when they do not fit.
void low_rank_gradients(const LowRankGradientsArgs& args);

// The same as two products, each of which reads dy: for back ends, where they have nothing better.
void low_rank_gradients_by_products(const LowRankGradientsArgs& args);

}  // namespace quench
