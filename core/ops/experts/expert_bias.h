#pragma once
// Expert bias: auxiliary-loss-free load balancing (Wang et al., 2024, arXiv:2408.15664; DeepSeek-V3, arXiv:2412.19437,
// section 2.1.2).

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// bias[i] += speed * sign(mean of counts - counts[first + i]).
struct ExpertBiasArgs {
  Tensor counts;           // f32 [E]: tokens per step
  Tensor bias;             // in/out, f32 [n]: of expert first + i
  std::int64_t first = 0;  // first + n <= E
  float speed = 0.001f;
};

extern constinit KernelSlot<ExpertBiasArgs> expert_bias_slot;

void update_expert_bias(const ExpertBiasArgs& args);

}  // namespace quench
