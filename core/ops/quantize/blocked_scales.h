#pragma once
// Block scales in the 128 x 4 tile layout of block-scaled GEMMs (core/number/blocked_scale.h).

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct BlockedScalesArgs {
  Tensor scales;   // [R,C], 1-byte dtype (E8M0, e4m3, u8), contiguous
  Tensor blocked;  // [blocked_scale_bytes(R, C)], same dtype, contiguous; no aliasing
};

extern constinit KernelSlot<BlockedScalesArgs> to_blocked_slot;

// Writes all of `blocked`; padding is zero bytes. Bit-equal to TorchAO's to_blocked.
void to_blocked(const BlockedScalesArgs& args);
[[nodiscard]] Tensor to_blocked(const Tensor& scales);

}  // namespace quench
