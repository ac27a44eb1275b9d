#include "nn/optim/weight_average.h"

#include <fmt/format.h>

#include "core/ops/elementwise.h"

namespace quench::nn {

WeightAverage::WeightAverage(std::unique_ptr<Optimizer> optimizer, double decay)
    : Optimizer(optimizer->parameters()), optimizer_(std::move(optimizer)), decay_(static_cast<float>(decay)) {
  const MemoryScope scope(MemoryCategory::optimizer);
  for (const Parameter* parameter : parameters()) {
    const Tensor value = parameter->variable.value();
    averages_.push_back(Tensor::zeros(value.shape(), DType::f32, value.device()));
  }
}

std::string WeightAverage::name_of(const Parameter& parameter) {
  return fmt::format("optimizer.ema.{}", parameter.name);
}

void WeightAverage::step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) {
  optimizer_->step(lr, step, grad_scale, part);
  for (std::size_t i = part.begin; i < part.end; ++i) {
    if (averages_[i].numel() == 0) continue;
    scale({.x = averages_[i], .factor = decay_});
    accumulate({.x = parameters()[i]->variable.value(), .out = averages_[i], .scale = 1.0f - decay_});
  }
}

void WeightAverage::refresh_master() {
  optimizer_->refresh_master();
  for (std::size_t i = 0; i < averages_.size(); ++i)
    if (averages_[i].numel() > 0) cast({parameters()[i]->variable.value(), averages_[i]});
}

std::vector<Optimizer::StateTensor> WeightAverage::state() {
  std::vector<StateTensor> all = optimizer_->state();
  for (std::size_t i = 0; i < averages_.size(); ++i)
    all.push_back({name_of(*parameters()[i]), averages_[i], parameters()[i]});
  return all;
}

std::vector<ParameterState> WeightAverage::parameter_states() {
  std::vector<ParameterState> all = optimizer_->parameter_states();
  for (std::size_t i = 0; i < averages_.size(); ++i) all[i].tensors.push_back(&averages_[i]);
  return all;
}

void WeightAverage::use() const {
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    if (averages_[i].numel() > 0) cast({averages_[i], parameters()[i]->variable.value()});
    parameters()[i]->mark_changed();
  }
}

}  // namespace quench::nn
