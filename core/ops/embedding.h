#pragma once
// Token embedding; backward: deterministic scatter-add.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct EmbeddingArgs {
  Tensor table;  // [V,H]; f32/bf16
  Tensor ids;    // i32 [N], each in [0,V)
  Tensor out;    // [N,H]
};

struct EmbeddingBackwardArgs {
  Tensor dout;
  Tensor ids;
  Tensor dtable;  // accumulates, [V,H], f32 or dtype of dout
};

extern constinit KernelSlot<EmbeddingArgs> embedding_slot;
extern constinit KernelSlot<EmbeddingBackwardArgs> embedding_backward_slot;

// Names position and id outside the table (CPU).
void embedding(const EmbeddingArgs& args);
// f32 sums per id in position order, no atomics.
void embedding_backward(const EmbeddingBackwardArgs& args);

}  // namespace quench
