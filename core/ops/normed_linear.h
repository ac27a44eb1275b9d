#pragma once
// Fused residual add, RMSNorm and linear for inference: sum = x + residual, y = RMSNorm(sum) W^T (+ bias), optionally
// a gated unit. The norm is rounded to the dtype of x: bit-identical to the separate ops.

#include <optional>

#include "core/device/kernel_slot.h"
#include "core/ops/gated_activation.h"
#include "core/tensor/packed_matrix.h"
#include "core/tensor/tensor.h"

namespace quench {

struct AddedNorm {
  Tensor residual;  // [M,K], dtype of x
  Tensor weight;    // [K], dtype of x
  float eps = 1e-5f;
  Tensor sum;  // out, [M,K] contiguous; aliases no input
};

struct NormedLinearArgs {
  Tensor x;  // [M,K], contiguous; f32/bf16
  AddedNorm norm;
  Tensor values;        // [N,K], dtype of x, contiguous; or
  PackedMatrix packed;  // [N,K]
  Tensor y;             // out, contiguous, dtype of x: [M,N], gated [M,N/2]
  Tensor bias{};        // [N], dtype of x, optional
  std::optional<GatedActivation> gated{};
};

// Decode (M = 1); otherwise normed_linear_apart().
extern constinit KernelSlot<NormedLinearArgs> normed_linear_slot;

void normed_linear(const NormedLinearArgs& args);
void normed_linear_apart(const NormedLinearArgs& args);

}  // namespace quench
