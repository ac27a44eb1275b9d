#pragma once
// Token embedding; its backward pass is a deterministic scatter-add.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct EmbeddingArgs {
  Tensor table;  // [V,H]; f32 or bf16
  Tensor ids;    // i32 [N], each in [0,V)
  Tensor out;    // [N,H]
};

struct EmbeddingBackwardArgs {
  Tensor dout;    // [N,H]
  Tensor ids;     // i32 [N]
  Tensor dtable;  // accumulates, [V,H], f32 or dtype of dout
};

extern constinit KernelSlot<EmbeddingArgs> embedding_slot;
extern constinit KernelSlot<EmbeddingBackwardArgs> embedding_backward_slot;

// Names position and id outside the table (CPU only).
void embedding(const EmbeddingArgs& args);
// f32 sums per id in position order, no atomics: bit-reproducible.
void embedding_backward(const EmbeddingBackwardArgs& args);

}  // namespace quench
