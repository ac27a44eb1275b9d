#include "nn/optim/sgd.h"

#include "core/number/random.h"

namespace quench::nn {

Sgd::Sgd(const std::vector<Parameter*>& all, OptimizerOptions options)
    : Optimizer(all), options_(std::move(options)), momentum_(options_.momentum.value_or(0.9)) {
  const MemoryScope scope(MemoryCategory::optimizer);
  for (const Parameter* p : parameters()) {
    const Tensor value = p->variable.value();
    SgdTensor& entry = tensors_.emplace_back();
    entry.param = value;
    if (momentum_ > 0)
      entry.momentum = make_state(value.shape(), options_.state_dtype, value.device(), options_.host_state);
    entry.master = make_master(*p, options_);
    entry.weight_decay = options_.weight_decay_of(*p);
    entry.random_stream = hash64(p->name);
    entry.element_offset = element_offset(*p);
  }
  refresh_master();
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
  for (std::size_t i = part.begin; i < part.end; ++i) {
    tensors_[i].grad = Tensor();
    parameters()[i]->mark_changed();
  }
}

std::vector<Optimizer::KeptTensor> Sgd::kept(std::size_t index) {
  return {{"momentum", &tensors_[index].momentum}, {kMaster, &tensors_[index].master}};
}

}  // namespace quench::nn
