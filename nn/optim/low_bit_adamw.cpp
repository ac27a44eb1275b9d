#include "nn/optim/low_bit_adamw.h"

#include "core/number/random.h"

namespace quench::nn {
namespace {

MomentCodes zero_moment(const Tensor& value, MomentFormat format, bool in_host_memory) {
  const std::int64_t rows = value.size(0), columns = value.size(1);
  const DType codes = format == MomentFormat::fp8 ? DType::f8_e4m3 : DType::u8;
  return {
      make_state({rows, format == MomentFormat::int4 ? columns / 2 : columns}, codes, value.device(), in_host_memory),
      make_state({rows, columns / moment_block(format)}, DType::f32, value.device(), in_host_memory)};
}

}  // namespace

bool has_low_bit_moments(const Parameter& parameter, MomentFormat format) {
  constexpr std::int64_t kLeastElements = 4096;  // below, scales and tables outweigh the savings
  const Shape& shape = parameter.global_shape;
  return shape.rank() == 2 && !parameter.scales && parameter.numel() >= kLeastElements &&
         shape[1] % moment_block(format) == 0;
}

LowBitAdamW::LowBitAdamW(const std::vector<Parameter*>& all, MomentFormat format, OptimizerOptions options)
    : Optimizer(all), format_(format), options_(std::move(options)) {
  const MemoryScope scope(MemoryCategory::optimizer);
  for (const Parameter* p : parameters()) {
    const Tensor value = p->variable.value();
    tensors_.push_back({.param = value,
                        .exp_avg = zero_moment(value, format, options_.host_state),
                        .exp_avg_sq = zero_moment(value, format, options_.host_state),
                        .master = make_master(*p, options_),
                        .weight_decay = options_.weight_decay_of(*p),
                        .random_stream = hash64(p->name),
                        .element_offset = element_offset(*p)});
  }
  refresh_master();
}

void LowBitAdamW::step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) {
  for (std::size_t i = part.begin; i < part.end; ++i) {
    tensors_[i].grad = gradient_of(i);
    tensors_[i].amax = parameters()[i]->amax;
  }
  low_bit_adamw({.tensors = std::span(tensors_).subspan(part.begin, part.end - part.begin),
                 .format = format_,
                 .adamw = {.lr = lr,
                           .beta1 = options_.beta1,
                           .beta2 = options_.beta2,
                           .eps = options_.eps,
                           .step = step,
                           .grad_scale = grad_scale,
                           .stochastic_rounding = options_.stochastic_rounding,
                           .seed = options_.seed}});
  for (std::size_t i = part.begin; i < part.end; ++i) {
    tensors_[i].grad = Tensor();
    parameters()[i]->mark_changed();
    if (tensors_[i].amax.defined()) parameters()[i]->amax_version = parameters()[i]->version;
  }
}

std::vector<Optimizer::KeptTensor> LowBitAdamW::kept(std::size_t index) {
  LowBitAdamWTensor& t = tensors_[index];
  return {{"exp_avg.codes", &t.exp_avg.codes},
          {"exp_avg.scales", &t.exp_avg.scales},
          {"exp_avg_sq.codes", &t.exp_avg_sq.codes},
          {"exp_avg_sq.scales", &t.exp_avg_sq.scales},
          {kMaster, &t.master}};
}

}  // namespace quench::nn
