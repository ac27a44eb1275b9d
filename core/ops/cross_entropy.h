#pragma once
// Cross-entropy of rows of logits and, in the same pass, its gradient.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

inline constexpr std::int32_t kIgnoreLabel = -100;

struct CrossEntropyArgs {
  Tensor logits;  // [N,V], contiguous; f32 or bf16
  Tensor labels;  // i32 [N]; kIgnoreLabel rows have loss 0 and gradient 0
  Tensor losses;  // out, f32 [N]: logsumexp(logits) - logits[label]
  Tensor
      dlogits;  // out, [N,V] f32 or bf16, or undefined: grad_scale * (softmax - onehot). May alias logits (same dtype)
  float grad_scale = 1.0f;
};

extern constinit KernelSlot<CrossEntropyArgs> cross_entropy_slot;

// Softmax in f32. Throws invalid_argument naming row and label when a label is outside [0,V) (host tensors).
void cross_entropy(const CrossEntropyArgs& args);

}  // namespace quench
