#include "nn/optim/sgd.h"

#include "core/number/random.h"
#include "core/ops/elementwise.h"

namespace quench::nn {

Sgd::Sgd(const std::vector<Parameter*>& all, OptimizerOptions options)
    : Optimizer(all), options_(std::move(options)), momentum_(options_.momentum.value_or(0.9)) {
  const MemoryScope scope(MemoryCategory::optimizer);
  for (const Parameter* p : parameters()) {
    const Tensor value = p->variable.value();
    SgdTensor& entry = tensors_.emplace_back();
    entry.param = value;
    if (momentum_ > 0) entry.momentum = Tensor::zeros(value.shape(), options_.state_dtype, value.device());
    entry.master = make_master(*p, options_);
    entry.weight_decay = options_.weight_decay_of(*p);
    entry.random_stream = hash64(p->name);
    entry.element_offset = element_offset(*p);
  }
  refresh_master();
}

void Sgd::refresh_master() {
  for (SgdTensor& entry : tensors_)
    if (entry.master.defined()) cast({entry.param, entry.master});
}

void Sgd::step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) {
  for (std::size_t i = part.begin; i < part.end; ++i) tensors_[i].grad = gradient_of(i);
  sgd({.tensors = std::span(tensors_).subspan(part.begin, part.end - part.begin),
       .lr = lr,
       .momentum = momentum_,
       .nesterov = options_.nesterov.value_or(false),
       .step = step,
       .grad_scale = grad_scale,
       .stochastic_rounding = options_.stochastic_rounding,
       .seed = options_.seed});
  for (std::size_t i = part.begin; i < part.end; ++i) parameters()[i]->mark_changed();
}

void Sgd::zero_grad(ParameterRange part) {
  for (std::size_t i = part.begin; i < part.end; ++i) tensors_[i].grad = Tensor();
  Optimizer::zero_grad(part);
}

std::vector<Optimizer::StateTensor> Sgd::state() const {
  std::vector<StateTensor> all;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Parameter* p = parameters()[i];
    if (tensors_[i].momentum.defined()) all.push_back({"optimizer.momentum." + p->name, tensors_[i].momentum, p});
    if (tensors_[i].master.defined()) all.push_back({master_name(*p), tensors_[i].master, p});
  }
  return all;
}

std::vector<ParameterState> Sgd::parameter_states() {
  std::vector<ParameterState> all;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    ParameterState& state = all.emplace_back();
    state.gradient_bytes = gradient_bytes(i);
    for (Tensor* tensor : {&tensors_[i].momentum, &tensors_[i].master})
      if (tensor->defined()) state.tensors.push_back(tensor);
  }
  return all;
}

}  // namespace quench::nn
