#pragma once
// A linear layer whose operands somebody else sees: what recipes lose on the activations and gradients of a real model.

#include <functional>

#include "nn/linear_kernel.h"

namespace quench {

// The operands of one layer's three products.
struct LinearOperands {
  Tensor x;   // [M,K]
  Tensor w;   // [N,K]
  Tensor b;   // [N], or undefined
  Tensor dy;  // [M,N]
};

// Runs another kernel, whose results it hands on bit for bit, and calls the observer in the backward pass. x is kept
// until then.
class ObservedLinear final : public nn::LinearKernelWrapper {
 public:
  using Observer = std::function<void(const LinearOperands&)>;
  ObservedLinear(std::shared_ptr<const nn::LinearKernel> kernel, Observer observer)
      : LinearKernelWrapper(std::move(kernel)), observer_(std::move(observer)) {}

  [[nodiscard]] autograd::Variable apply(const autograd::Variable& x, const nn::Parameter& weight,
                                         const autograd::Weight& bias) const override;

 private:
  Observer observer_;
};

// What a layer computes from its operands.
struct LinearProducts {
  Tensor y;   // [M,N] in the dtype of x
  Tensor dx;  // [M,K] likewise
  Tensor dw;  // [N,K] f32
};
[[nodiscard]] LinearProducts run_products(const nn::LinearKernel& kernel, const LinearOperands& operands);

}  // namespace quench
