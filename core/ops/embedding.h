#pragma once
// Token embedding: rows of a table, and the scatter-add of their gradients in a fixed order.

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
  Tensor dtable;  // in and out, [V,H], f32 or dtype of dout: the gradient is added to it
};

extern constinit KernelSlot<EmbeddingArgs> embedding_slot;
extern constinit KernelSlot<EmbeddingBackwardArgs> embedding_backward_slot;

// Throws invalid_argument naming the position and the id when an id is outside the table (host tensors).
void embedding(const EmbeddingArgs& args);
// Rows of one id are summed in f32 in the order of their positions: no float atomics, same bits on every run.
void embedding_backward(const EmbeddingBackwardArgs& args);

}  // namespace quench
