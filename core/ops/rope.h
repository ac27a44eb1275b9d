#pragma once
// Rotary position embedding (Su et al., 2021, arXiv:2104.09864) in the half-split ("NeoX") layout of Hugging Face
// checkpoints: (x1, x2) = halves of a head; (x1 cos - x2 sin, x2 cos + x1 sin). Computed in f32, in place.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct RopeArgs {
  Tensor x;              // in and out, [N,heads,D] (heads may be a strided view of a fused projection); f32 or bf16
  Tensor cos;            // f32 [positions,D/2], contiguous
  Tensor sin;            // f32 [positions,D/2]
  Tensor positions;      // i32 [N], each < positions
  bool inverse = false;  // rotate by the negative angle: the backward pass
};

extern constinit KernelSlot<RopeArgs> rope_slot;

void rope(const RopeArgs& args);

}  // namespace quench
