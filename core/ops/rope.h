#pragma once
// Rotary position embedding (Su et al., 2021, arXiv:2104.09864): (x1 cos - x2 sin, x2 cos + x1 sin), computed in f32,
// in place. x1 and x2 are the halves of a head ("NeoX", the layout of most Hugging Face checkpoints), or neighbours.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct RopeArgs {
  Tensor x;                  // in and out, [N,heads,D] (heads may be a strided view of a fused projection); f32 or bf16
  Tensor cos;                // f32 [positions,D/2], contiguous
  Tensor sin;                // f32 [positions,D/2]
  Tensor positions;          // i32 [N], each < positions
  bool inverse = false;      // rotate by the negative angle: the backward pass
  bool interleaved = false;  // elements 2i and 2i+1 are rotated together (Llama 4), not i and i + D/2
};

extern constinit KernelSlot<RopeArgs> rope_slot;

void rope(const RopeArgs& args);

}  // namespace quench
