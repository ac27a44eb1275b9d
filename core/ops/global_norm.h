#pragma once
// Global gradient norm and clipping factor, on the device.

#include <span>

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct SquaredNormArgs {
  std::span<const Tensor> tensors;  // contiguous; f32/bf16
  Tensor result;                    // out, f64 [1]: sum of squares
};

struct ClipScaleArgs {
  Tensor squared_norm;    // f64 [1]
  float max_norm = 0.0f;  // <= 0: no clipping
  Tensor norm;
  Tensor scale;  // out, f32 [1]: min(1, max_norm / (norm + 1e-6)), as clip_grad_norm_; NaN if norm is not finite
};

extern constinit KernelSlot<SquaredNormArgs> squared_norm_slot;
extern constinit KernelSlot<ClipScaleArgs> clip_scale_slot;

// Deterministic for any thread count and memory order of tensors.
void squared_norm(const SquaredNormArgs& args);
// Norm and factor of gradient clipping, on the device.
void clip_scale(const ClipScaleArgs& args);

}  // namespace quench
