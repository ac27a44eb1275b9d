#pragma once
// Differentiable gated units, dense and of experts, and their fused backward. Shapes, aliasing and errors are those of
// core/ops/swiglu.h and core/ops/experts/token_permutation.h.

#include <optional>

#include "autograd/tape.h"
#include "core/ops/gated_activation.h"

namespace quench::autograd {

struct TokenPermutation;

// SwiGLU, or another gated unit, of gate_up [N,2I]: [N,I]. `known`: the value, if already computed and `wanted` is
// empty. Offers SwigluBackward to the producer of its output's gradient.
Variable swiglu(const Variable& gate_up, const QuantOutputRequest& wanted = {}, const Tensor& known = {},
                GatedActivation activation = GatedActivation::silu);

// Operands of the unit's backward in the epilogue of the dgrad GEMM of the next linear layer.
struct SwigluBackward : FusedBackward {
  Tensor gate_up;   // [N,2I]
  Tensor dgate_up;  // out, [N,2I]; may alias gate_up
  GatedActivation activation = GatedActivation::silu;
};

// SwiGLU of gate_up [R,2I] times the router weight f32 [N,k]: [R,I]; with `score_before_experts` SwiGLU of the weighted
// gate_up. Of `request` only a substitution by MxSubstitution is supported, if 32 divides I. `clamped`:
// that unit instead of SwiGLU.
Variable expert_swiglu(const Variable& gate_up, const Variable& weights, const TokenPermutation& rows,
                       bool score_before_experts = false, const QuantOutputRequest& request = {},
                       const std::optional<ClampedUnit>& clamped = std::nullopt);

}  // namespace quench::autograd
