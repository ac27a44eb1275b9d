#pragma once
// Cross-entropy and its gradient in one pass.

#include "core/device/kernel_slot.h"
#include "core/tensor/quant_tensor.h"
#include "core/tensor/tensor.h"

namespace quench {

// Label without loss.
inline constexpr std::int32_t kIgnoreLabel = -100;

struct CrossEntropyArgs {
  Tensor logits;     // [N,V], contiguous; f32/bf16
  Tensor labels;     // i32 [N]; kIgnoreLabel: loss and gradient 0
  Tensor losses;     // out, f32 [N]: logsumexp(logits) - logits[label]
  Tensor dlogits{};  // out, optional, [N,V], f32/bf16: grad_scale * (softmax - onehot); may alias logits
  float grad_scale = 1.0f;
  // out, optional, in place of dlogits: float8 codes under the tensorwise scale given in it; those of cast_float8() of
  // dlogits in the codes' source dtype.
  QuantTensor codes{};
  DeviceType planned_for = DeviceType::cuda;  // on the meta device: whose kernel's memory is counted
};

extern constinit KernelSlot<CrossEntropyArgs> cross_entropy_slot;

// f32 softmax. Names row and label outside [0,V) (CPU).
void cross_entropy(const CrossEntropyArgs& args);

}  // namespace quench
