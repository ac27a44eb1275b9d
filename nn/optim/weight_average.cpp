#include "nn/optim/weight_average.h"

#include <fmt/format.h>

#include "core/number/random.h"
#include "core/ops/elementwise.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

WeightAverage::WeightAverage(std::unique_ptr<Optimizer> optimizer, const Options& options)
    : Optimizer(optimizer->parameters()), optimizer_(std::move(optimizer)), options_(options) {
  const MemoryScope scope(MemoryCategory::optimizer);
  for (const Parameter* parameter : parameters()) {
    const Tensor value = parameter->variable.value();
    tensors_.push_back({.param = value,
                        .average = make_state(value.shape(), options_.dtype, value.device(), options_.host_state),
                        .random_stream = hash64(name_of(*parameter)),
                        .element_offset = element_offset(*parameter)});
  }
}

std::string WeightAverage::name_of(const Parameter& parameter) {
  return fmt::format("optimizer.ema.{}", parameter.name);
}

void WeightAverage::step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) {
  optimizer_->step(lr, step, grad_scale, part);
  average_weights({.tensors = std::span(tensors_).subspan(part.begin, part.end - part.begin),
                   .decay = options_.decay,
                   .step = step,
                   .seed = options_.seed});
}

void WeightAverage::refresh_master() {
  optimizer_->refresh_master();
  for (const AveragedTensor& t : tensors_)
    if (t.average.numel() > 0) cast_state(t.param, t.average);
}

std::vector<Optimizer::StateTensor> WeightAverage::state() {
  std::vector<StateTensor> all = optimizer_->state();
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    all.push_back({name_of(*parameters()[i]), tensors_[i].average, parameters()[i]});
  return all;
}

std::vector<ParameterState> WeightAverage::parameter_states() {
  std::vector<ParameterState> all = optimizer_->parameter_states();
  for (std::size_t i = 0; i < tensors_.size(); ++i) all[i].tensors.push_back(&tensors_[i].average);
  return all;
}

void WeightAverage::use() const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor average = tensors_[i].average.to(tensors_[i].param.device());
    if (average.numel() > 0) cast({average, tensors_[i].param});
    parameters()[i]->mark_changed();
  }
}

}  // namespace quench::nn
