#pragma once
// A linear layer whose output SwiGLU takes (core/ops/swiglu.h), for results that nothing differentiates:
// y = silu(gate) * up with [gate, up] = x W^T (+ bias). The product is rounded to the dtype of x before SwiGLU: the
// bits of the two ops one after the other.

#include "core/device/kernel_slot.h"
#include "core/ops/packed_linear.h"
#include "core/tensor/tensor.h"

namespace quench {

struct GatedLinearArgs {
  Tensor x;       // [M,K], contiguous; f32 or bf16
  Tensor weight;  // [2I,K] in the dtype of x: rows 0..I-1 make gates, I..2I-1 what they let through
  Tensor y;       // out, [M,I], contiguous, in the dtype of x
  Tensor bias;    // [2I] in the dtype of x, or undefined
};

// Kernels in one pass for one row of x, the token of generation. The rows of x and of the weight begin at multiples of
// 16 bytes.
extern constinit KernelSlot<GatedLinearArgs> gated_linear_slot;
// With a packed weight [2I,K], y as above.
extern constinit KernelSlot<PackedLinearArgs> gated_packed_linear_slot;

// Where there is no kernel for the operands, a product and SwiGLU. Throw invalid_argument naming what does not fit.
void gated_linear(const GatedLinearArgs& args);
void gated_packed_linear(const PackedLinearArgs& args);

}  // namespace quench
