#pragma once
// Stochastic gradient descent with momentum for many tensors in one call, as torch.optim.SGD defines it.

#include <span>

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct SgdTensor {
  Tensor param;     // f32 or bf16
  Tensor grad;      // f32 or bf16, same shape
  Tensor momentum;  // f32 or bf16, same shape; undefined without momentum
  Tensor master;    // f32 copy of a bf16 param that is updated and then rounded into it, or undefined
  double weight_decay = 0.0;
  std::uint64_t random_stream = 0;  // hash64 of the parameter's name, for stochastic rounding
  std::int64_t element_offset = 0;  // global index of the first element of this shard
};

struct SgdArgs {
  std::span<const SgdTensor> tensors;  // all contiguous
  double lr = 0.0;
  double momentum = 0.0;  // in [0, 1)
  bool nesterov = false;
  std::int64_t step = 1;  // 1-based
  // f32 [1] on the device, or undefined: factor of the gradients (clipping). A non-finite factor leaves all as it is.
  Tensor grad_scale;
  bool stochastic_rounding = false;  // for bf16 params without master, and for bf16 momentum
  std::uint64_t seed = 0;
};

extern constinit KernelSlot<SgdArgs> sgd_slot;

// Per element in f32: g = g + wd p; b = momentum b + g; p = p - lr (nesterov ? g + momentum b : b). Random bits are
// those of adamw(): AdamWRounding::param and ::exp_avg.
void sgd(const SgdArgs& args);

}  // namespace quench
