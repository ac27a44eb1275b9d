#include "nn/optim/optimizer.h"

#include "core/ops/global_norm.h"

namespace quench::nn {

Optimizer::Optimizer(const std::vector<Parameter*>& parameters) {
  for (Parameter* p : parameters)
    if (p->variable.requires_grad()) parameters_.push_back(p);
}

void Optimizer::squared_grad_norm(const Tensor& result) const {
  std::vector<Tensor> gradients;
  for (const Parameter* p : parameters_)
    if (p->variable.gradient()->has_value()) gradients.push_back(p->variable.grad());
  squared_norm({.tensors = gradients, .result = result});
}

Tensor Optimizer::gradient_of(std::size_t index) const {
  const auto& gradient = parameters_[index]->variable.gradient();
  if (!gradient->has_value()) gradient->target().tensor.zero();
  return gradient->value();
}

std::int64_t Optimizer::gradient_bytes(std::size_t index) const {
  const Variable& variable = parameters_[index]->variable;
  return variable.value().numel() * static_cast<std::int64_t>(byte_size(variable.gradient()->dtype()));
}

void Optimizer::zero_grad(ParameterRange part) {
  for (std::size_t i = part.begin; i < part.end; ++i) parameters_[i]->variable.gradient()->reset();
}

}  // namespace quench::nn
