#include "nn/optim/multiplicative_updates.h"

#include <algorithm>

#include "core/number/random.h"

namespace quench::nn {

MultiplicativeUpdates::MultiplicativeUpdates(const std::vector<Parameter*>& all, OptimizerOptions options,
                                             const Make& make)
    : Optimizer(all), options_(std::move(options)) {
  const MemoryScope scope(MemoryCategory::optimizer);
  std::vector<Parameter*> relatives;
  for (const Parameter* p : parameters()) {
    const Tensor value = p->variable.value();
    tensors_.push_back({.param = value,
                        .relative = Tensor::zeros(value.shape(), DType::f32, value.device()),
                        .master = make_master(*p, options_),
                        .random_stream = hash64(p->name),
                        .element_offset = element_offset(*p)});
    auto relative = std::make_unique<Parameter>();
    relative->name = p->name;
    relative->global_shape = p->global_shape;
    relative->shard = p->shard;
    relative->sharding = p->sharding;
    relative->pieces = p->pieces;
    relative->scales = p->scales;
    relative->variable = Variable(tensors_.back().relative);
    relative->variable.set_gradient(p->variable.gradient());
    relatives.push_back(relative.get());
    relatives_.push_back(std::move(relative));
  }
  steps_ = make(relatives);
  refresh_master();
}

void MultiplicativeUpdates::step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) {
  for (std::size_t i = part.begin; i < part.end; ++i) tensors_[i].relative.zero();
  steps_->step(lr * options_.scale_lr_multiplier, step, grad_scale, part);
  multiplicative_update({.tensors = std::span(tensors_).subspan(part.begin, part.end - part.begin),
                         .step = step,
                         .stochastic_rounding = options_.stochastic_rounding,
                         .seed = options_.seed});
  for (std::size_t i = part.begin; i < part.end; ++i) parameters()[i]->mark_changed();
}

std::vector<Optimizer::StateTensor> MultiplicativeUpdates::state() {
  std::vector<StateTensor> all = steps_->state();
  for (StateTensor& tensor : all) {
    const auto own = std::ranges::find(relatives_, tensor.parameter, &std::unique_ptr<Parameter>::get);
    tensor.parameter = parameters()[static_cast<std::size_t>(own - relatives_.begin())];
  }
  for (StateTensor& master : Optimizer::state()) all.push_back(std::move(master));
  return all;
}

std::vector<ParameterState> MultiplicativeUpdates::parameter_states() {
  std::vector<ParameterState> all = steps_->parameter_states(), masters = Optimizer::parameter_states();
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i].tensors.insert(all[i].tensors.end(), masters[i].tensors.begin(), masters[i].tensors.end());
  return all;
}

std::vector<Optimizer::KeptTensor> MultiplicativeUpdates::kept(std::size_t index) {
  return {{kMaster, &tensors_[index].master}};
}

}  // namespace quench::nn
