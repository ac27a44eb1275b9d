#pragma once
// Multi-tensor SGD with momentum, as torch.optim.SGD. Other fields: AdamWTensor.

#include <span>

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct SgdTensor {
  Tensor param;
  Tensor grad;
  Tensor momentum{};  // undefined if momentum is 0
  Tensor master;
  double weight_decay = 0.0;
  std::uint64_t random_stream = 0;
  std::int64_t element_offset = 0;
};

struct SgdArgs {
  std::span<const SgdTensor> tensors;  // all contiguous
  double lr = 0.0;
  double momentum = 0.0;  // in [0, 1)
  bool nesterov = false;
  std::int64_t step = 1;  // 1-based
  // f32 [1] on the device, optional. Non-finite: no update.
  Tensor grad_scale;
  bool stochastic_rounding = false;  // bf16 params without master, bf16 momentum
  std::uint64_t seed = 0;
};

extern constinit KernelSlot<SgdArgs> sgd_slot;

// In f32: g = g + wd p; b = momentum b + g; p = p - lr (nesterov ? g + momentum b : b). Random bits as adamw() with
// AdamWRounding::param and ::exp_avg.
void sgd(const SgdArgs& args);

}  // namespace quench
