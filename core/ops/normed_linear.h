#pragma once
// A linear layer whose input is RMSNorm of a residual stream (core/ops/norm.h), for results that nothing
// differentiates: sum = x + residual, y = RMSNorm(sum) W^T (+ bias), or gated (core/ops/gated_linear.h). The norm is
// rounded to the dtype of x before the product: the bits of the ops one after the other.

#include "core/device/kernel_slot.h"
#include "core/tensor/packed_matrix.h"
#include "core/tensor/tensor.h"

namespace quench {

struct AddedNorm {
  Tensor residual;  // [M,K] as x
  Tensor weight;    // [K], dtype of x
  float eps = 1e-5f;
  Tensor sum;  // out, [M,K] contiguous. No memory of x or residual
};

struct NormedLinearArgs {
  Tensor x;  // [M,K], contiguous; f32 or bf16
  AddedNorm norm;
  Tensor values;        // [N,K] in the dtype of x, contiguous, or
  PackedMatrix packed;  // [N,K]
  Tensor y;             // out, contiguous, in the dtype of x: [M,N], gated [M,N/2]
  Tensor bias;          // [N] in the dtype of x, or undefined
  bool gated = false;
};

// Kernels in one pass for one row of x; what one does not take it gives to normed_linear_apart().
extern constinit KernelSlot<NormedLinearArgs> normed_linear_slot;

// Throws invalid_argument naming what does not fit.
void normed_linear(const NormedLinearArgs& args);
// The norm and the product, one after the other.
void normed_linear_apart(const NormedLinearArgs& args);

}  // namespace quench
