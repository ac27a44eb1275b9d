#pragma once
// Linear layer wrapper with an operand observer, for recipe errors on the activations and gradients of a real model.

#include <functional>

#include "nn/modules/linear_kernel.h"

namespace quench {

// Operands of a layer's forward, dgrad and wgrad GEMMs.
struct LinearOperands {
  Tensor x;   // [M,K]
  Tensor w;   // [N,K]
  Tensor b;   // [N], or undefined
  Tensor dy;  // [M,N]
};

// Delegates to another kernel, bit-identical, and calls the observer in the backward pass. Saves x until then.
class ObservedLinear final : public nn::LinearObserver {
 public:
  using Observer = std::function<void(const LinearOperands&)>;
  ObservedLinear(std::shared_ptr<const nn::LinearKernel> kernel, Observer observer)
      : LinearObserver(std::move(kernel)), observer_(std::move(observer)) {}

 private:
  [[nodiscard]] autograd::Variable observe(const autograd::Variable& x, const nn::Parameter& weight,
                                           const autograd::Weight& bias) const override;

  Observer observer_;
};

// Results of a layer's three GEMMs.
struct LinearProducts {
  Tensor y;   // [M,N], dtype of x
  Tensor dx;  // [M,K], dtype of x
  Tensor dw;  // [N,K] f32
};
[[nodiscard]] LinearProducts run_products(const nn::LinearKernel& kernel, const LinearOperands& operands);

}  // namespace quench
