#include "nn/optim/adamw.h"

#include "core/ops/elementwise.h"

namespace quench::nn {

AdamW::AdamW(const std::vector<Parameter*>& all, OptimizerOptions options)
    : Optimizer(all), options_(std::move(options)) {
  const MemoryScope scope(MemoryCategory::optimizer);
  for (const Parameter* p : parameters()) {
    const Tensor value = p->variable.value();
    AdamWTensor entry;
    entry.param = value;
    entry.exp_avg = Tensor::zeros(value.shape(), options_.state_dtype, value.device());
    entry.exp_avg_sq = Tensor::zeros(value.shape(), options_.state_dtype, value.device());
    entry.master = make_master(*p, options_);
    entry.weight_decay = options_.weight_decay_of(*p);
    entry.random_stream = hash64(p->name);
    entry.element_offset = element_offset(*p);
    tensors_.push_back(std::move(entry));
  }
  refresh_master();
}

void AdamW::refresh_master() {
  for (AdamWTensor& entry : tensors_)
    if (entry.master.defined()) cast({entry.param, entry.master});
}

void AdamW::step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) {
  for (std::size_t i = part.begin; i < part.end; ++i) {
    tensors_[i].grad = gradient_of(i);
    tensors_[i].amax = parameters()[i]->amax;  // a layer's kernel may have changed
  }
  adamw({.tensors = std::span(tensors_).subspan(part.begin, part.end - part.begin),
         .lr = lr,
         .beta1 = options_.beta1,
         .beta2 = options_.beta2,
         .eps = options_.eps,
         .step = step,
         .grad_scale = grad_scale,
         .stochastic_rounding = options_.stochastic_rounding,
         .seed = options_.seed});
  for (std::size_t i = part.begin; i < part.end; ++i) {
    parameters()[i]->mark_changed();
    if (tensors_[i].amax.defined()) parameters()[i]->amax_version = parameters()[i]->version;
  }
}

void AdamW::zero_grad(ParameterRange part) {
  for (std::size_t i = part.begin; i < part.end; ++i) tensors_[i].grad = Tensor();
  Optimizer::zero_grad(part);
}

std::vector<Optimizer::StateTensor> AdamW::state() const {
  std::vector<StateTensor> all;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::string& name = parameters()[i]->name;
    all.push_back({"optimizer.exp_avg." + name, tensors_[i].exp_avg, parameters()[i]});
    all.push_back({"optimizer.exp_avg_sq." + name, tensors_[i].exp_avg_sq, parameters()[i]});
    if (tensors_[i].master.defined())
      all.push_back({master_name(*parameters()[i]), tensors_[i].master, parameters()[i]});
  }
  return all;
}

std::vector<ParameterState> AdamW::parameter_states() {
  std::vector<ParameterState> all;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    AdamWTensor& entry = tensors_[i];
    ParameterState& state = all.emplace_back();
    state.gradient_bytes = gradient_bytes(i);
    for (Tensor* tensor : {&entry.exp_avg, &entry.exp_avg_sq, &entry.master})
      if (tensor->defined()) state.tensors.push_back(tensor);
  }
  return all;
}

}  // namespace quench::nn
