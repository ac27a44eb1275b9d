#pragma once
// Elementwise product, and broadcast over rows: f32 and bf16, arithmetic in f32, one rounding.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct MulArgs {
  Tensor a;    // any shape, contiguous
  Tensor b;    // dtype of a, contiguous; shape of a, or [C]: one factor for each element of a's last axis
  Tensor out;  // shape of a, contiguous; dtype of a, or f32; may alias a or b of its shape and dtype
};

struct BroadcastRowsArgs {
  Tensor from;  // [C], or [1] for all columns; contiguous
  Tensor out;   // [N,C], contiguous; dtypes may differ
  float scale = 1.0f;
};

extern constinit KernelSlot<MulArgs> mul_slot;
extern constinit KernelSlot<BroadcastRowsArgs> broadcast_rows_slot;

// out = a * b.
void mul(const MulArgs& args);
// Each row of out = scale * from.
void broadcast_rows(const BroadcastRowsArgs& args);

}  // namespace quench
