#pragma once
// AdamW (Loshchilov and Hutter, 2019, arXiv:1711.05101) for many tensors in one call.

#include <span>

#include "core/kernel_slot.h"
#include "core/random.h"
#include "core/tensor.h"

namespace quench {

struct AdamWTensor {
  Tensor param;       // f32 or bf16; the working weights
  Tensor grad;        // f32 or bf16, same shape
  Tensor exp_avg;     // f32 or bf16
  Tensor exp_avg_sq;  // f32 or bf16
  Tensor master;      // f32 copy that is updated and then rounded into param, or undefined
  float weight_decay = 0.0f;
  std::uint64_t random_stream = 0;  // hash64 of the parameter's name, for stochastic rounding
  std::int64_t element_offset = 0;  // global index of the first element of this shard
};

struct AdamWArgs {
  std::span<const AdamWTensor> tensors;  // all contiguous
  float lr = 0.0f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  std::int64_t step = 1;  // 1-based, for bias correction
  Tensor
      grad_scale;  // f32 [1] on the device: factor of the gradients (clipping). A non-finite factor leaves all as it is
  bool stochastic_rounding = false;  // for bf16 params without master, and for bf16 states
  std::uint64_t seed = 0;
};

extern constinit KernelSlot<AdamWArgs> adamw_slot;

// Per element in f32: p -= lr*wd*p; m = m + (1-b1)(g-m); v = b2 v + (1-b2) g^2;
// p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps).
void adamw(const AdamWArgs& args);

}  // namespace quench
