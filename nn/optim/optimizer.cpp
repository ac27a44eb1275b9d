#include "nn/optim/optimizer.h"

#include <fmt/format.h>

#include <span>

#include "core/ops/global_norm.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

Optimizer::Optimizer(const std::vector<Parameter*>& parameters) {
  for (Parameter* p : parameters)
    if (p->variable.requires_grad()) parameters_.push_back(p);
}

std::string Optimizer::state_name(std::string_view what, const Parameter& parameter) {
  return fmt::format("optimizer.{}.{}", what, parameter.name);
}

std::vector<Optimizer::KeptTensor> Optimizer::defined(std::size_t index) {
  std::vector<KeptTensor> all = kept(index);
  std::erase_if(all, [](const KeptTensor& entry) { return !entry.tensor->defined(); });
  return all;
}

void Optimizer::refresh_master() {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (const KeptTensor& entry : defined(i)) {
      if (entry.what == kMaster) cast_state(parameters_[i]->variable.value(), *entry.tensor);
      if (entry.what == kMasterLow && !parameters_[i]->variable.value().device().is_meta()) entry.tensor->zero();
    }
}

std::vector<Optimizer::StateTensor> Optimizer::state() {
  std::vector<StateTensor> all;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (const KeptTensor& entry : defined(i))
      all.push_back({state_name(entry.what, *parameters_[i]), *entry.tensor, parameters_[i]});
  return all;
}

std::vector<ParameterState> Optimizer::parameter_states() {
  std::vector<ParameterState> all;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    ParameterState& state = all.emplace_back();
    for (const KeptTensor& entry : defined(i)) state.tensors.push_back(entry.tensor);
  }
  return all;
}

void Optimizer::squared_grad_norm(const Tensor& result, ParameterRange part, const Tensor& more) const {
  std::vector<Tensor> gradients;
  for (const Parameter* p : std::span(parameters_).subspan(part.begin, part.end - part.begin))
    if (p->variable.gradient()->has_value() && !p->is_copy()) gradients.push_back(p->variable.grad());
  if (more.defined()) gradients.push_back(more);
  squared_norm({.tensors = gradients, .result = result});
}

Tensor Optimizer::gradient_of(std::size_t index) const {
  const auto& gradient = parameters_[index]->variable.gradient();
  if (!gradient->has_value()) gradient->target().tensor.zero();
  return gradient->value();
}

void Optimizer::zero_grad(ParameterRange part) {
  for (std::size_t i = part.begin; i < part.end; ++i) parameters_[i]->variable.gradient()->reset();
}

}  // namespace quench::nn
