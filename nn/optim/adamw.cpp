#include "nn/optim/adamw.h"

namespace quench::nn {

AdamW::AdamW(const std::vector<Parameter*>& all, OptimizerOptions options)
    : Optimizer(all), options_(std::move(options)) {
  const MemoryScope scope(MemoryCategory::optimizer);
  for (const Parameter* p : parameters()) {
    const Tensor value = p->variable.value();
    AdamWTensor entry;
    entry.param = value;
    entry.exp_avg = make_state(value.shape(), options_.state_dtype, value.device(), options_.host_state);
    entry.exp_avg_sq = make_state(value.shape(), options_.state_dtype, value.device(), options_.host_state);
    const bool splits = options_.master_weights && options_.split_master && value.dtype() == DType::bf16;
    entry.master =
        splits ? make_state(value.shape(), DType::i16, value.device(), options_.host_state) : make_master(*p, options_);
    entry.weight_decay = options_.weight_decay_of(*p);
    entry.random_stream = hash64(p->name);
    entry.element_offset = element_offset(*p);
    tensors_.push_back(std::move(entry));
  }
  refresh_master();
}

void AdamW::step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) {
  for (std::size_t i = part.begin; i < part.end; ++i) {
    tensors_[i].grad = gradient_of(i);
    tensors_[i].amax = parameters()[i]->amax;  // may change with the layer's kernel
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
    tensors_[i].grad = Tensor();
    parameters()[i]->mark_changed();
    if (tensors_[i].amax.defined()) parameters()[i]->amax_version = parameters()[i]->version;
  }
}

std::vector<Optimizer::KeptTensor> AdamW::kept(std::size_t index) {
  AdamWTensor& t = tensors_[index];
  const bool splits = t.master.defined() && t.master.dtype() == DType::i16;
  return {{"exp_avg", &t.exp_avg}, {"exp_avg_sq", &t.exp_avg_sq}, {splits ? kMasterLow : kMaster, &t.master}};
}

}  // namespace quench::nn
