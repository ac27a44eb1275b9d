#pragma once
// Fused linear + gated unit for inference: y = activation(gate) * up, [gate, up] = x W^T (+ bias), rounded to the dtype
// of x: bit-identical to the two ops.

#include "core/device/kernel_slot.h"
#include "core/ops/gated_activation.h"
#include "core/ops/packed_linear.h"
#include "core/tensor/tensor.h"

namespace quench {

struct GatedLinearArgs {
  Tensor x;       // [M,K], contiguous; f32/bf16
  Tensor weight;  // [2I,K], dtype of x: gate, up
  Tensor y;       // out, [M,I], like x
  Tensor bias{};  // [2I], dtype of x, optional
  GatedActivation activation = GatedActivation::silu;
};

struct GatedPackedLinearArgs {
  Tensor x;             // [M,K], contiguous; f32/bf16
  PackedMatrix weight;  // [2I,K]: gate, up
  Tensor y;             // out, [M,I], like x
  Tensor bias{};        // [2I], dtype of x, optional
  GatedActivation activation = GatedActivation::silu;
};

// Decode (M = 1); rows of x and weight are 16-byte aligned.
extern constinit KernelSlot<GatedLinearArgs> gated_linear_slot;
extern constinit KernelSlot<GatedPackedLinearArgs> gated_packed_linear_slot;

// Fall back to GEMM and swiglu().
void gated_linear(const GatedLinearArgs& args);
void gated_packed_linear(const GatedPackedLinearArgs& args);

}  // namespace quench
